package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
)

// Subagent is a session that the model started to do a part of the work.
type Subagent struct {
	store.Record
	Session    string `db:"subagent_id" json:"subagent_id"`
	Delegating string `db:"delegating_agent_id" json:"delegating_agent_id"` // the session that started it
	Chat       string `db:"chat" json:"chat"`
	Agent      string `db:"agent" json:"agent"`
	Title      string `db:"title" json:"title"`
	Status     string `db:"status" json:"status"` // running, completed, failed, aborted
	TmuxWindow int64  `db:"tmux_window_id" json:"tmux_window_id"`
	Started    string `db:"started" json:"started"`
	Finished   string `db:"finished" json:"finished"` // empty while it runs
	Position   int64  `db:"position" json:"position"`
}

// SubagentRunning is the status of a subagent that has not ended; it ends as its last message does.
const SubagentRunning = "running"

// updateSubagents runs after sessions and messages: a subagent is running while the turn of its session is. A subagent
// without a message has not begun yet, and counts as running.
func updateSubagents(t *tables, e events.Event, body any) error {
	s, found := t.sessions.Get(sessionOf(body))
	if !found || s.Parent == "" {
		return nil
	}
	a, found := t.subagents.Get(RecordID(s.ID))
	if !found {
		a.Session, a.Chat, a.Started, a.Position = s.ID, s.Chat, t.tx.EventTime(), int64(e.Seq)
	}
	a.Delegating, a.Agent, a.Title = s.Parent, s.Agent, s.Title
	status := SubagentRunning
	if !s.active() && s.Outcome != "" {
		status = s.Outcome
	}
	if status != a.Status {
		a.Status, a.Finished = status, ""
		if status != SubagentRunning {
			a.Finished = t.tx.EventTime()
		}
	}
	t.subagents.Put(a)
	return nil
}

// sessionOf names the session whose turn an event moves.
func sessionOf(body any) string {
	switch b := body.(type) {
	case opencode.SessionUpdated:
		return b.SessionID
	case opencode.SessionStatus:
		return b.SessionID
	case opencode.SessionError:
		return b.SessionID
	case opencode.MessageUpdated:
		return b.SessionID
	case opencode.SessionDeleted:
		return b.SessionID
	case events.TurnLost:
		return b.Session
	}
	return ""
}

// Subagents lists a chat's subagents in the order they were started.
func (m *Model) Subagents(ctx context.Context, chat string) ([]Subagent, error) {
	return store.List[Subagent](ctx, m.Model, "subagents of "+chat, "SELECT * FROM subagents WHERE chat={:chat} ORDER BY position", dbx.Params{"chat": chat})
}
