package projections

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
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
	Opened       int64      `db:"opened" json:"-"`      // Unix ms
	Status       string     `db:"status" json:"status"` // idle, busy, retry
	RetryAttempt int64      `db:"retry_attempt" json:"retry_attempt"`
	RetryMessage string     `db:"retry_message" json:"retry_message"`
	RetryNext    int64      `db:"retry_next" json:"retry_next"` // Unix ms
	Seq          int64      `db:"seq" json:"seq"`               // newest durable sequence in the log, -1 for none
	OCSeq        int64      `db:"oc_seq" json:"-"`
	Processing   store.JSON `db:"processing" json:"processing"` // list of our ids of assistant messages that have not ended
	Awaiting     string     `db:"awaiting" json:"awaiting"`     // engine id of the message we sent that nothing has answered
	Unanswered   string     `db:"unanswered" json:"-"`
	Outcome      string     `db:"outcome" json:"outcome"` // of the last turn: completed, failed, aborted
}

// sessionIdle is OpenCode's status of an idle session.
const sessionIdle = "idle"

// noMessages is the empty list of Processing.
const noMessages = store.JSON("[]")

func updateSessions(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.SessionBound:
		chat, _ := t.chats.Get(e.Subject.ID)
		s := t.session(b.Session, e)
		s.Directory, s.Engine = b.Directory, chat.Engine
		t.sessions.Put(s)
	case events.MessageSending:
		s := t.session(b.Session, e)
		s.Awaiting = b.EngineMessage
		t.sessions.Put(s)
	case opencode.SessionUpdated:
		applySessionInfo(t, e, b)
	case opencode.SessionStatus:
		s := t.session(b.SessionID, e)
		s.Status, s.RetryAttempt, s.RetryMessage, s.RetryNext = b.Status.Type, b.Status.Attempt, b.Status.Message, int64(b.Status.Next)
		t.sessions.Put(s)
	case opencode.SessionDeleted:
		s := t.session(b.SessionID, e)
		s.Removed = true
		t.sessions.Put(s)
	case opencode.Other:
		if e.OpenCodeSeq >= 0 && b.SessionID != "" { // a type we do not follow still has its place in the session's history
			t.sessions.Put(t.session(b.SessionID, e))
		}
	}
	return nil
}

func applySessionInfo(t *tables, e events.Event, b opencode.SessionUpdated) {
	s := t.session(b.SessionID, e)
	if newer(e, s.OCSeq) {
		s.OCSeq = max(s.OCSeq, e.OpenCodeSeq)
		s.Directory, s.Agent, s.Title, s.Opened = b.Info.Directory, b.Info.Agent, b.Info.Title, b.Info.Time.Created
		if s.Parent = b.Info.ParentID; s.Parent != "" {
			parent, _ := t.sessions.Get(s.Parent)
			s.Root = parent.Root
			if s.Root == "" {
				s.Root = s.Parent
			}
		}
	}
	t.sessions.Put(s)
}

// newer reports whether a durable event is newer than a row. An event that is not durable always is.
func newer(e events.Event, seq int64) bool { return e.OpenCodeSeq < 0 || e.OpenCodeSeq > seq }

// session returns the row of a session. The first event that names a session creates its row.
func (t *tables) session(id string, e events.Event) Session {
	s, found := t.sessions.Get(id)
	if !found {
		s.Chat, s.Root, s.Status, s.Processing, s.Seq, s.OCSeq = e.Subject.ID, id, sessionIdle, noMessages, -1, -1
	}
	if engine, ok := strings.CutPrefix(e.Actor, events.EngineActor("")); ok {
		s.Engine = engine
	}
	s.Seq = max(s.Seq, e.OpenCodeSeq)
	return s
}

// ids returns the list in Processing.
func (s Session) ids() []string {
	var ids []string
	_ = json.Unmarshal([]byte(s.Processing), &ids) // written by setProcessing
	return ids
}

// setProcessing records whether an assistant message of the session is being written.
func (s *Session) setProcessing(message string, on bool) {
	ids := s.ids()
	i, found := slices.BinarySearch(ids, message)
	switch {
	case on && !found:
		ids = slices.Insert(ids, i, message)
	case !on && found:
		ids = slices.Delete(ids, i, i+1)
	default:
		return
	}
	s.Processing = encoded(ids)
}

// active says whether a turn of the session is running: it has ended when OpenCode says idle, every assistant message
// has ended and nothing we sent waits for an answer. Idle alone comes early when a turn is aborted or fails.
func (s Session) active() bool {
	return s.Status != sessionIdle || s.Processing != noMessages || s.Awaiting != ""
}

// Sessions lists the sessions of an engine that it has not deleted.
func (m *Model) Sessions(ctx context.Context, engine string) ([]Session, error) {
	return store.List[Session](ctx, m.Model, "sessions of "+engine, "SELECT * FROM sessions WHERE engine={:engine} AND NOT removed ORDER BY id", dbx.Params{"engine": engine})
}

// Session returns a session, and whether there is one.
func (m *Model) Session(ctx context.Context, id string) (Session, bool, error) {
	return store.First[Session](ctx, m.Model, "session "+id, "SELECT * FROM sessions WHERE id={:id}", dbx.Params{"id": id})
}

// UnfinishedTurns lists the sessions that have an assistant message without an end, or a delivered message that waits for
// an answer. When OpenCode is not running them, their turns are lost.
func (m *Model) UnfinishedTurns(ctx context.Context) ([]Session, error) {
	return store.List[Session](ctx, m.Model, "unfinished turns", `SELECT s.* FROM sessions s
		WHERE (processing <> '[]' OR awaiting <> '')
		AND NOT (processing = '[]' AND EXISTS (SELECT 1 FROM messages WHERE ai_engine_message_id = s.awaiting AND user_message_status = 'sending'))
		ORDER BY id`, nil)
}
