package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"pocketcoder/bridge/opencode/snapshots"
	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/projections"
)

// Run carries out effects until ctx ends. It looks for open effects when an event may have changed them, when a
// try has ended, and when a failed effect may be tried again.
func (o *Outbox) Run(ctx context.Context) error {
	if err := o.endEarlierEffects(ctx); err != nil {
		return err
	}
	s := &schedule{Outbox: o}
	loop := outbox.Loop[work]{Name: "effects in OpenCode", Log: o.Log, Model: o.Model, Logger: o.Logger,
		Pauses: o.RetryAfter, Open: s.openEffects, Try: s.try,
		Plan: func(open, running []effect, now time.Time) []effect {
			return plan(open, running, s.turns, o.MaxTurns, now)
		},
		Ready: func(ctx context.Context) (<-chan struct{}, error) { // a try without OpenCode is wasted
			err := o.Ingest.WaitConnected(ctx)
			return o.Ingest.Reconnected(), err // a new OpenCode may accept effects that failed before
		}}
	return loop.Run(ctx)
}

// schedule is the state of Run. A new process needs none of it.
type schedule struct {
	*Outbox
	turns map[string]int // running turns, by account
}

// openEffects lists the open effects in log order. It reads the commands last, so that the list has each command
// before a listed message.
func (s *schedule) openEffects(ctx context.Context) (open []effect, next time.Duration, err error) {
	known := map[string]bool{}
	for _, list := range []func(context.Context) ([]effect, error){s.messages, s.decisions, s.questions, s.commands} {
		effects, err := list(ctx)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range effects {
			if !known[e.Key] {
				known[e.Key] = true
				open = append(open, e)
			}
		}
	}
	slices.SortStableFunc(open, func(a, b effect) int { return cmp.Compare(a.Of.seq, b.Of.seq) })
	s.turns, err = s.Model.CountRunningTurns(ctx, s.Engine)
	return open, untilTomorrow(time.Now()), err
}

// try tries an effect. A message that is not sent because the log does not store commands at present does not count as
// a failed try.
func (s *schedule) try(ctx context.Context, e effect) error {
	if err := s.Ingest.WaitConnected(ctx); err != nil {
		return err
	}
	err := e.Of.try(ctx, e.Tried)
	if e.Of.kind == messageKind && isUnavailable(err) {
		return outbox.Again{Err: err, After: outbox.Pause(s.RetryAfter, e.Tried)}
	}
	return err
}

// commands lists the open aborts, reverts, forks and omissions. A fork is an effect of the new chat, so other effects
// of the copied chat do not wait while OpenCode copies.
func (s *schedule) commands(ctx context.Context) (open []effect, err error) {
	all, err := s.Model.PendingEffects(ctx, s.Engine)
	for _, f := range all {
		e := effect{Key: f.Kind + "/" + f.ID, Target: f.Chat, Pause: s.Pause, Of: work{kind: commandKind, seq: f.Position}}
		carryOut := func(act func(context.Context, projections.Effect) error) func(context.Context, int) error {
			return func(ctx context.Context, _ int) error {
				return s.recordOutcome(ctx, f, snapshots.Restored{}, act(ctx, f))
			}
		}
		switch f.Kind {
		case projections.EffectAbort:
			e.Of.kind, e.Of.try = abortKind, carryOut(s.abort)
		case projections.EffectFork:
			e.Target, e.Of.from, e.Of.try = f.Into, f.Chat, carryOut(s.fork)
		case projections.EffectOmit:
			e.Of.try = carryOut(s.omit)
		default:
			e.Of.try = func(ctx context.Context, tried int) error { return s.tryRevert(ctx, f, tried) }
		}
		open = append(open, e)
	}
	return open, err
}

// endEarlierEffects records the end of effects that an earlier version carried out. That version recorded no ends in
// the log, but its durable consumers hold the last sequence that it carried out.
func (o *Outbox) endEarlierEffects(ctx context.Context) error {
	open, err := o.Model.PendingEffects(ctx, o.Engine)
	if err != nil || len(open) == 0 {
		return err
	}
	until := map[string]uint64{}
	// The kinds are the names of those consumers.
	for _, kind := range []string{projections.EffectAbort, projections.EffectRevert, projections.EffectFork} {
		if until[kind], err = o.Log.LastAcked(ctx, kind); err != nil {
			return fmt.Errorf("find out which effects were carried out: %w", err)
		}
	}
	for _, f := range open {
		if uint64(f.Position) <= until[f.Kind] {
			if err := o.record(ctx, f.Chat, events.EffectDone{Effect: f.ID}); err != nil {
				return err
			}
		}
	}
	return nil
}
