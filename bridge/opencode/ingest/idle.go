package ingest

import (
	"context"
	"slices"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

// DefaultIdleLimit is shorter than the 10 s between two heartbeats of OpenCode. So the second heartbeat that finds a
// turn idle compares it.
const DefaultIdleLimit = 5 * time.Second

// idleTurn is a turn with a message that has not ended, of a session that OpenCode has reported as idle.
type idleTurn struct {
	session projections.Session
	since   time.Time // of the first heartbeat that found it like this
}

// watchIdle compares idle turns with OpenCode at its heartbeats. OpenCode leaves such a turn when it cannot store the
// end of a message, for example on a full disk. It also reports idle up to 315 ms before it ends an aborted message
// (behaviours idle-unstored, abort-idle-first). So a turn is compared only if nothing of its session has changed for
// IdleLimit. After an error the next heartbeat compares again: a new connection to OpenCode would not help.
func (in *Ingest) watchIdle(ctx context.Context, burst []client.Event) error {
	if !slices.ContainsFunc(burst, func(e client.Event) bool { return e.Type == heartbeat }) {
		return nil
	}
	unfinished, err := in.Model.UnfinishedTurns(ctx)
	if err != nil {
		return err
	}
	found, quiet := map[string]idleTurn{}, map[string]projections.Session{}
	for _, s := range unfinished {
		if s.Engine != in.Engine || !IsIdle(s) {
			continue
		}
		turn := in.idle[s.ID]
		if !isUnchanged(turn.session, s) {
			turn = idleTurn{s, time.Now()}
		}
		found[s.ID] = turn
		if time.Since(turn.since) >= in.IdleLimit {
			quiet[s.ID] = s
		}
	}
	in.idle = found
	if len(quiet) == 0 {
		return nil
	}
	if err := in.compareIdle(ctx, quiet); err != nil {
		in.Logger.Warn("compare idle turns with opencode", "err", err)
	}
	return ctx.Err()
}

// IsIdle reports whether OpenCode has reported a session as idle and not ended its message.
func IsIdle(s projections.Session) bool { return s.Status == turnstate.Idle && s.Processing != "" }

// isUnchanged reports whether no event has changed the turn of a session, or added to the history of the session.
func isUnchanged(before, now projections.Session) bool {
	return before.Turn == now.Turn && before.Seq == now.Seq
}

// LoseIdle records turn.lost for the turn of a session, if the session is idle and OpenCode has not ended its message.
// OpenCode must have nothing to write in the session any more, as after an abort.
func (in *Ingest) LoseIdle(ctx context.Context, session string) error {
	in.taking.Lock()
	defer in.taking.Unlock()
	s, _, err := in.Model.Session(ctx, session)
	if err != nil || !IsIdle(s) {
		return err
	}
	return in.compareIdle(ctx, map[string]projections.Session{session: s})
}

// compareIdle records turn.lost for those of the turns that OpenCode does not run and has not ended. It reads the
// history after the statuses: if a turn has ended or gone on meanwhile, the history has events of its session.
func (in *Ingest) compareIdle(ctx context.Context, idle map[string]projections.Session) error {
	held := memory{busy: map[string]client.Status{}}
	for _, s := range idle {
		if err := in.readStatuses(ctx, s.Directory, held.busy); err != nil {
			return err
		}
	}
	if err := in.fetchHistory(ctx); err != nil {
		return err
	}
	if err := in.Model.Wait(ctx, in.last.Load()); err != nil {
		return err
	}
	c := comparison{Ingest: in, memory: held}
	err := c.loseTurns(ctx, func(s projections.Session) bool {
		before, isIdle := idle[s.ID]
		return isIdle && isUnchanged(before, s)
	})
	if err != nil {
		return err
	}
	return in.append(ctx, c.missing)
}
