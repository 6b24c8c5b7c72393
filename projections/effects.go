package projections

import (
	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
)

// Effect is an abort, a revert or a fork of a chat, to be carried out in OpenCode.
type Effect struct {
	store.Record        // the id is that of the event that requested it
	Chat         string `db:"chat"`
	Kind         string `db:"kind"`
	Session      string `db:"session"`   // abort: OpenCode's id of a subagent's session; empty for the chat's own
	Message      string `db:"message"`   // revert, fork: OpenCode's id of the message; empty for the last revert, or the whole chat
	Into         string `db:"into_chat"` // fork: the new chat
	State        string `db:"state"`
	Reason       string `db:"reason"` // why it failed
	Position     int64  `db:"position"`
}

const (
	EffectAbort  = "abort"
	EffectRevert = "revert"
	EffectFork   = "fork"
)

const (
	EffectOpen   = "open"
	EffectDone   = "done"
	EffectFailed = "failed"
)

func updateEffects(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.AbortRequested:
		t.openEffect(e, Effect{Kind: EffectAbort, Session: b.Session})
	case events.RevertRequested:
		t.openEffect(e, Effect{Kind: EffectRevert, Message: b.Message})
	case events.ForkRequested:
		t.openEffect(e, Effect{Kind: EffectFork, Message: b.Message, Into: b.Chat})
	case events.EffectDone:
		t.endEffect(e, b.Effect, EffectDone, "")
	case events.EffectFailed:
		t.endEffect(e, b.Effect, EffectFailed, b.Reason)
	}
	return nil
}

func (t *tables) openEffect(e events.Event, opened Effect) {
	f, found := t.effects.Get(e.ID)
	if found {
		return // the event was appended twice
	}
	opened.Record, opened.Chat, opened.State, opened.Position = f.Record, e.Subject.ID, EffectOpen, int64(e.Seq)
	t.effects.Put(opened)
}

// endEffect records the end of an effect of the event's chat.
func (t *tables) endEffect(e events.Event, id, state, reason string) {
	f, found := t.effects.Get(id)
	if !found || f.Chat != e.Subject.ID || f.State != EffectOpen {
		return
	}
	f.State, f.Reason = state, reason
	t.effects.Put(f)
}

// mayChangeEffects reports whether the event with this body may open or end an effect in OpenCode. The events of a streaming answer do
// not, so the outbox does not wake for each of them.
func mayChangeEffects(body any) bool {
	switch b := body.(type) {
	case opencode.PartUpdated:
		return b.Part.Type == "tool" // the end of a call also ends its questions
	case opencode.SessionUpdated, opencode.Other, events.ExecStarted, events.ExecChanged:
		return false
	}
	return true
}
