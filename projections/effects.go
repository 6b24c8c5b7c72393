package projections

import (
	"encoding/json"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
)

// Effect is an abort, a revert or a fork of a chat, or an omission of its files, to be carried out in OpenCode.
// It is open until an event of its chat says how it ended.
type Effect struct {
	store.Record        // the id is that of the event that requested it
	Chat         string `db:"chat"`
	Kind         string `db:"kind"`
	Session      string `db:"session"` // abort: OpenCode's id of a subagent's session; empty for the chat's own
	// revert, fork: OpenCode's id of the message; empty for the last revert, or the whole chat
	Message   string `db:"message"`
	Overwrite bool   `db:"overwrite"` // revert: it keeps no file that was changed since
	Kept      string `db:"kept"`      // revert: the files that it kept, as a JSON list; empty for none
	Copies    string `db:"copies"`    // revert: directory with earlier versions of kept files; empty for none
	Into      string `db:"into_chat"` // fork: the new chat
	Files     string `db:"files"`     // omit: a JSON list of events.OmittedFile; empty for none
	State     string `db:"state"`
	Reason    string `db:"reason"` // why it failed
	Position  int64  `db:"position"`
}

// Kinds of an effect.
const (
	EffectAbort  = "abort"
	EffectRevert = "revert"
	EffectFork   = "fork"
	EffectOmit   = "omit"
)

// States of an effect.
const (
	effectOpen   = "open"
	effectDone   = "done"
	EffectFailed = "failed"
)

// updateEffects applies an event of a chat.
func updateEffects(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.AbortRequested:
		openEffect(t.effects, e, Effect{Kind: EffectAbort, Session: b.Session})
	case events.RevertRequested:
		openEffect(t.effects, e, Effect{Kind: EffectRevert, Message: b.Message, Overwrite: b.Overwrite})
	case events.ForkRequested:
		openEffect(t.effects, e, Effect{Kind: EffectFork, Message: b.Message, Into: b.Chat})
	case events.OmissionRequested:
		openEffect(t.effects, e, Effect{Kind: EffectOmit, Files: listOrEmpty(b.Files)})
	case events.EffectDone:
		endEffect(t.effects, e, b.Effect, func(f *Effect) {
			f.State, f.Kept, f.Copies = effectDone, listOrEmpty(b.Kept), b.Copies
		})
	case events.EffectFailed:
		endEffect(t.effects, e, b.Effect, func(f *Effect) { f.State, f.Reason = EffectFailed, b.Reason })
	}
	return nil
}

func openEffect(t *store.Table[Effect], e events.Event, opened Effect) {
	f, found := t.Get(e.ID)
	if found {
		return // the event was appended twice
	}
	opened.Record, opened.Chat, opened.State, opened.Position = f.Record, e.Subject.ID, effectOpen, int64(e.Seq)
	t.Put(opened)
}

// listOrEmpty encodes a list of strings, or of objects of them. It returns "" for an empty one.
func listOrEmpty[T any](all []T) string {
	if len(all) == 0 {
		return ""
	}
	encoded, _ := json.Marshal(all)
	return string(encoded)
}

// endEffect records the end of an effect of the event's chat.
func endEffect(t *store.Table[Effect], e events.Event, id string, change func(*Effect)) {
	f, found := t.Get(id)
	if !found || f.Chat != e.Subject.ID || f.State != effectOpen {
		return
	}
	change(&f)
	t.Put(f)
}

// mayChangeEffect reports whether the event with this body may open or end an effect in OpenCode. The events of a
// streaming answer do not, so the outbox does not wake for each of them.
func mayChangeEffect(body any) bool {
	switch b := body.(type) {
	case opencode.PartUpdated:
		return b.Part.Type == "tool" // the end of a call also ends its questions
	case opencode.SessionUpdated, opencode.OtherPayload, events.ExecStarted, events.ExecChanged:
		return false
	}
	return true
}
