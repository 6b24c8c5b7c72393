package outbox

import (
	"context"
	"encoding/json"
	"errors"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/projections/pending"
)

// Abort carries out AbortRequested events until ctx ends. It retries each until OpenCode accepts it.
func (o *Outbox) Abort(ctx context.Context) error {
	return o.carryOut(ctx, AbortWorker, events.AbortRequested{}, o.abort)
}

// readCommand decodes a command once OpenCode is connected and the read model has the event.
func (o *Outbox) readCommand(ctx context.Context, e events.Event, command any) error {
	if err := o.WaitConnected(ctx); err != nil {
		return err
	}
	if err := o.Model.Wait(ctx, e.Seq); err != nil {
		return err
	}
	return json.Unmarshal(e.Data, command)
}

func (o *Outbox) abort(ctx context.Context, e events.Event) error {
	var command events.AbortRequested
	if err := o.readCommand(ctx, e, &command); err != nil {
		return err
	}
	chat, ok, err := o.Model.Chat(ctx, e.Subject.ID)
	if err != nil {
		return err
	}
	if command.Session == "" {
		command.Session = chat.Session
	}
	s, known := o.Session(command.Session)
	if !ok || !known || s.Chat != chat.ID || chat.Engine != o.Engine {
		return nil // nothing has run there yet
	}
	return o.stop(ctx, command.Session)
}

// stop ends the turn of a session and of its subagents, if there is one.
func (o *Outbox) stop(ctx context.Context, session string) error {
	if err := o.Current().Abort(ctx, session); err != nil && !errors.Is(err, client.ErrGone) {
		return err
	}
	return o.dropAsks(ctx, session)
}

// dropAsks ends the requests of an aborted turn. OpenCode keeps listing them as pending, so it gets a rejection too. If that fails the
// abort is not repeated, because it could end the next turn.
func (o *Outbox) dropAsks(ctx context.Context, session string) error {
	const reason = "the turn was aborted"
	asks, err := pending.Requests(ctx, o.Model)
	if err != nil {
		return err
	}
	for _, p := range asks {
		if !o.below(p.Session, session) {
			continue
		}
		if err := o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: reason}); err != nil {
			return err
		}
		if err := o.Current().Reject(ctx, p.Directory, p.EnginePermission, ""); err != nil && !errors.Is(err, client.ErrGone) {
			o.Logger.Warn("drop ask", "err", err)
		}
	}
	questions, err := pending.Questions(ctx, o.Model)
	if err != nil {
		return err
	}
	for _, group := range pending.Together(questions) {
		q := group[0]
		if !o.below(q.Session, session) {
			continue
		}
		if err := o.dropQuestion(ctx, q, reason); err != nil {
			return err
		}
	}
	return nil
}

// below says whether a session is the given one or one of its subagents, however deep.
func (o *Outbox) below(session, root string) bool {
	for session != "" && session != root {
		session = o.Parent(session)
	}
	return session == root && root != ""
}
