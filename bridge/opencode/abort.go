package opencode

import (
	"context"
	"encoding/json"
	"errors"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/projections/pending"
)

// AbortWorker is the name under which the log remembers which aborts were carried out.
const AbortWorker = "abort"

// Abort carries out people's wishes that a turn stop, until ctx ends: each until OpenCode has taken it.
func (b *Bridge) Abort(ctx context.Context) error {
	filter := events.ChatSubject("*", events.AbortRequested{}.Kind())
	return b.Log.Work(ctx, AbortWorker, filter, b.abort, func(e events.Event, err error) {
		b.Logger.Warn("abort", "chat", e.Subject.ID, "err", err)
	})
}

// wished reads a wish once OpenCode is there to hear it and the read model holds it.
func (b *Bridge) wished(ctx context.Context, e events.Event, wish any) error {
	if err := b.live.wait(ctx); err != nil {
		return err
	}
	if err := b.Model.Wait(ctx, e.Seq); err != nil {
		return err
	}
	return json.Unmarshal(e.Data, wish)
}

func (b *Bridge) abort(ctx context.Context, e events.Event) error {
	var wish events.AbortRequested
	if err := b.wished(ctx, e, &wish); err != nil {
		return err
	}
	chat, ok, err := b.Model.Chat(ctx, e.Subject.ID)
	if err != nil {
		return err
	}
	if wish.Session == "" {
		wish.Session = chat.Session
	}
	s, known := b.tracker.get(wish.Session)
	if !ok || !known || s.chat != chat.ID || chat.Engine != b.Engine {
		return nil // nothing has run there yet
	}
	return b.stop(ctx, wish.Session)
}

// stop ends the turn of a session and of its subagents, if there is one.
func (b *Bridge) stop(ctx context.Context, session string) error {
	if err := b.api().Abort(ctx, session); err != nil && !errors.Is(err, client.ErrGone) {
		return err
	}
	return b.dropAsks(ctx, session)
}

// dropAsks settles what an aborted turn was waiting for. OpenCode keeps listing an aborted ask as pending, so it is told
// too; that it does not hear is no reason to abort again, which could hit the next turn.
func (b *Bridge) dropAsks(ctx context.Context, session string) error {
	const reason = "the turn was aborted"
	asks, err := pending.Requests(ctx, b.Model)
	if err != nil {
		return err
	}
	for _, p := range asks {
		if !b.below(p.Session, session) {
			continue
		}
		if err := b.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: reason}); err != nil {
			return err
		}
		if err := b.api().Reject(ctx, p.Directory, p.EnginePermission, ""); err != nil && !errors.Is(err, client.ErrGone) {
			b.Logger.Warn("drop ask", "err", err)
		}
	}
	questions, err := pending.Questions(ctx, b.Model)
	if err != nil {
		return err
	}
	for _, group := range pending.Together(questions) {
		q := group[0]
		if !b.below(q.Session, session) {
			continue
		}
		if err := b.dropQuestion(ctx, q, reason); err != nil {
			return err
		}
	}
	return nil
}

// below says whether a session is the given one or one of its subagents, however deep.
func (b *Bridge) below(session, root string) bool {
	for session != "" && session != root {
		s, _ := b.tracker.get(session)
		session = s.parent
	}
	return session == root && root != ""
}
