package outbox

import (
	"context"
	"errors"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/bridge/opencode/snapshots"
	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

// abort stops the turn of a chat or of one of its subagents.
func (o *Outbox) abort(ctx context.Context, f projections.Effect) error {
	if f.Session == "" {
		chat, _, err := o.Model.Chat(ctx, f.Chat)
		if err != nil {
			return err
		}
		f.Session = chat.Session
	}
	if s, known := o.Ingest.Session(f.Session); !known || s.Chat != f.Chat {
		return nil // nothing has run there yet
	}
	if err := o.awaitBegin(ctx, f.Session); err != nil {
		return err
	}
	s, _, err := o.Model.Session(ctx, f.Session)
	if err != nil {
		return err
	}
	if err := o.stop(ctx, f.Session); err != nil || !ingest.IsIdle(s) {
		return err
	}
	// OpenCode answers an abort when nothing runs in the session any more. So a message that is open then never ends.
	return o.Ingest.LoseIdle(ctx, f.Session)
}

// beginTimeout limits the wait for the beginning of a turn. OpenCode may have lost the message.
const beginTimeout = 10 * time.Second

// awaitBegin waits until OpenCode has begun the turn of a message that it has accepted, because an abort has no effect
// before.
func (o *Outbox) awaitBegin(ctx context.Context, session string) error {
	end := time.Now().Add(beginTimeout)
	for {
		seq := o.Model.Seq()
		s, _, err := o.Model.Session(ctx, session)
		if err != nil || s.Awaiting == "" || s.Status != turnstate.Idle && s.Status != "" || s.Processing != "" {
			return err
		}
		waiting, cancel := context.WithDeadline(ctx, end)
		err = o.Model.Wait(waiting, seq+1)
		cancel()
		if err != nil {
			return ctx.Err() // nil after the timeout
		}
	}
}

// recordOutcome records the outcome of a try to abort, revert, fork or omit. It records no failure if another try may
// help, and an abort never fails.
func (o *Outbox) recordOutcome(ctx context.Context, f projections.Effect, restored snapshots.Restored,
	err error) error {
	if err == nil {
		return o.record(ctx, f.Chat, events.EffectDone{Effect: f.ID, Kept: restored.Kept, Copies: restored.Copies})
	}
	var refusal *client.Error
	if f.Kind == projections.EffectAbort || !errors.As(err, &refusal) || refusal.Status == 0 || client.Retryable(err) {
		return err
	}
	o.Logger.Warn("opencode refuses", "effect", f.Kind, "chat", f.Chat, "err", err)
	return o.record(ctx, f.Chat, events.EffectFailed{Effect: f.ID, Reason: err.Error()})
}

// stop ends the turn of a session and of its subagents, if there is one.
func (o *Outbox) stop(ctx context.Context, session string) error {
	if err := o.Ingest.Current().Abort(ctx, session); err != nil && !errors.Is(err, client.ErrGone) {
		return err
	}
	return o.dropRequests(ctx, session)
}

// dropRequests expires the requests and questions of an aborted turn. OpenCode keeps listing them as pending, so it
// also gets a rejection. If that fails the abort is not repeated, because it could end the next turn.
func (o *Outbox) dropRequests(ctx context.Context, session string) error {
	const reason = "the turn was aborted"
	requests, err := o.Model.PendingRequests(ctx)
	if err != nil {
		return err
	}
	for _, p := range requests {
		if !o.isWithin(p.Session, session) {
			continue
		}
		if err := o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission,
			Reason: reason}); err != nil {
			return err
		}
		if err := o.Ingest.Current().Reject(ctx, p.Directory, p.EnginePermission, ""); err != nil &&
			!errors.Is(err, client.ErrGone) {
			o.Logger.Warn("reject the request of an aborted turn", "err", err)
		}
	}
	questions, err := o.Model.PendingQuestions(ctx)
	if err != nil {
		return err
	}
	for _, group := range projections.AskedTogether(questions) {
		q := group[0]
		if !o.isWithin(q.Session, session) {
			continue
		}
		if err := o.dropQuestion(ctx, q, reason); err != nil {
			return err
		}
	}
	return nil
}

// isWithin reports whether a session is root or one of its subagents, at any depth.
func (o *Outbox) isWithin(session, root string) bool {
	for session != "" && session != root {
		session = o.Ingest.Parent(session)
	}
	return session == root && root != ""
}
