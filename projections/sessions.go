package projections

import (
	"cmp"
	"context"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// Session is an OpenCode session of a chat: the chat's own, or a subagent's when it has a parent.
type Session struct {
	store.Record            // the id is OpenCode's
	Chat         string     `db:"chat" json:"chat"`
	Parent       string     `db:"parent" json:"parent"`
	Root         string     `db:"root" json:"root"`
	Engine       string     `db:"engine" json:"engine"`
	Directory    string     `db:"directory" json:"directory"`
	Agent        string     `db:"agent" json:"agent"`
	Title        string     `db:"title" json:"title"`
	ChosenAgent  string     `db:"chosen_agent" json:"-"` // record of the agent that its last message is for
	ChosenName   string     `db:"chosen_name" json:"-"`  // and its name then
	Opened       int64      `db:"opened" json:"-"`       // Unix ms
	Seq          int64      `db:"seq" json:"seq"`        // newest durable sequence in the log, -1 for none
	OCSeq        int64      `db:"oc_seq" json:"-"`
	Retry        store.JSON `db:"retry" json:"-"` // opencode.Retry while OpenCode waits for the provider
	turnstate.Turn
	Runs   bool   `db:"runs" json:"-"`   // OpenCode works in it, or waits there for a person
	Newest string `db:"newest" json:"-"` // OpenCode's id of its newest message of the assistant
}

// putSession stores a session.
func (t *tables) putSession(s Session) {
	if s.Status != turnstate.Retrying {
		s.Retry = ""
	}
	s.Runs = s.Turn.Runs(t.sending(s))
	t.sessions.Put(s)
	if s.Parent != "" {
		t.putSubagent(s)
	}
}

// sending reports whether the message that the session awaits an answer to is still being sent.
func (t *tables) sending(s Session) bool {
	if s.Awaiting == "" {
		return false
	}
	m, _ := t.messages.Get(t.messageID(s.Awaiting))
	return m.undelivered()
}

// setWaiting records whether a request of a session waits for a person. It holds up the turn of the session at the
// root.
func (t *tables) setWaiting(session, request string, on bool) {
	s, _ := t.sessions.Get(session)
	if root, found := t.sessions.Get(s.Root); found {
		root.Waiting = root.Waiting.With(request, on)
		t.putSession(root)
	}
}

func updateSessions(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.SessionBound:
		chat, _ := t.chats.Get(e.Subject.ID)
		s := t.session(b.Session, e)
		s.Directory, s.Engine = b.Directory, chat.Engine
		t.putSession(s)
	case events.MessageSending:
		s := t.session(b.Session, e)
		// a turn whose message OpenCode has reported has begun, or is over: see join
		if _, reported := t.messages.Get(store.RecordID(b.EngineMessage)); !reported {
			s.Awaiting = b.EngineMessage
		}
		s.ChosenAgent, s.ChosenName = b.Agent, b.AgentName
		t.putSession(s)
	case events.EffectDone:
		endWait(t, e, b)
	case opencode.SessionUpdated:
		applySessionInfo(t, e, b)
	case opencode.SessionStatus:
		s := t.session(b.SessionID, e)
		if s.Status = b.Status.Type; s.Status == turnstate.Retrying {
			s.Retry = encoded(b.Status.Retry)
		}
		t.putSession(s)
	case opencode.SessionDeleted:
		s := t.session(b.SessionID, e)
		s.Removed = true
		t.putSession(s)
	case opencode.OtherPayload:
		if e.OpenCodeSeq >= 0 && b.SessionID != "" { // a type we do not follow still has its place in the session's history
			t.putSession(t.session(b.SessionID, e))
		}
	}
	return nil
}

// endWait ends the wait of a message for an answer if the turn that it had joined was stopped, because OpenCode reports
// no end for it.
func endWait(t *tables, e events.Event, b events.EffectDone) {
	f, found := t.effects.Get(b.Effect)
	if !found || f.Chat != e.Subject.ID || f.Session != "" ||
		f.Kind == EffectFork || f.Kind == EffectOmit {
		return
	}
	chat, _ := t.chats.Get(f.Chat)
	if s, found := t.sessions.Get(chat.Session); found {
		s.Stop(t.sending(s))
		t.putSession(s)
	}
}

func applySessionInfo(t *tables, e events.Event, b opencode.SessionUpdated) {
	s := t.session(b.SessionID, e)
	if newer(e, s.OCSeq) {
		s.OCSeq = max(s.OCSeq, e.OpenCodeSeq)
		s.Directory, s.Agent, s.Title, s.Opened = b.Info.Directory, b.Info.Agent, b.Info.Title, b.Info.Time.Created
		if s.Parent = b.Info.ParentID; s.Parent != "" {
			parent, _ := t.sessions.Get(s.Parent)
			s.Root = cmp.Or(parent.Root, s.Parent)
		}
	}
	t.putSession(s)
}

// newer reports whether a durable event is newer than a row. An event that is not durable always is.
func newer(e events.Event, seq int64) bool { return e.OpenCodeSeq < 0 || e.OpenCodeSeq > seq }

// session returns the row of a session. The first event that names a session creates its row.
func (t *tables) session(id string, e events.Event) Session {
	s, found := t.sessions.Get(id)
	if !found {
		s.Chat, s.Root, s.Status, s.Seq, s.OCSeq = e.Subject.ID, id, turnstate.Idle, -1, -1
	}
	if engine, ok := strings.CutPrefix(e.Actor, events.EngineActor("")); ok {
		s.Engine = engine
	}
	s.Seq = max(s.Seq, e.OpenCodeSeq)
	return s
}

// Sessions lists the sessions of an engine that it has not deleted. It reads only the columns that a start needs,
// because there can be 10,000 sessions: id, chat, parent, engine, directory, status and seq.
func (m *Model) Sessions(ctx context.Context, engine string) ([]Session, error) {
	return store.List[Session](ctx, m.Model, "sessions of "+engine,
		"SELECT id, chat, parent, engine, directory, status, seq FROM sessions WHERE engine={:engine} AND NOT removed "+
			"ORDER BY id", dbx.Params{"engine": engine})
}

func (m *Model) Session(ctx context.Context, id string) (Session, bool, error) {
	return store.First[Session](ctx, m.Model, "session "+id, "SELECT * FROM sessions WHERE id={:id}", dbx.Params{"id": id})
}
