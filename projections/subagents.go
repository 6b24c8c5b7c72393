package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
)

// Subagent is a session that the model started to do a part of the work.
type Subagent struct {
	Record
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

type subagents struct{}

func (subagents) Name() string        { return "subagents" }
func (subagents) Schema() string      { return schema("subagents") }
func (subagents) Scope() events.Scope { return events.ScopeChat }

// Apply comes after sessions and messages: a subagent runs while the turn of its session does. Before its first message
// it has done nothing yet, so it runs too.
func (subagents) Apply(tx *Tx, e events.Event, body any) error {
	s, found := tx.sessions.get(sessionOf(body))
	if !found || s.Parent == "" {
		return nil
	}
	a, found := tx.subagents.get(RecordID(s.ID))
	if !found {
		a.Session, a.Chat, a.Started, a.Position = s.ID, s.Chat, tx.at, int64(e.Seq)
	}
	a.Delegating, a.Agent, a.Title = s.Parent, s.Agent, s.Title
	status := SubagentRunning
	if !s.active() && s.Outcome != "" {
		status = s.Outcome
	}
	if status != a.Status {
		a.Status, a.Finished = status, ""
		if status != SubagentRunning {
			a.Finished = tx.at
		}
	}
	tx.subagents.put(a)
	return nil
}

// sessionOf names the session whose turn an event moves.
func sessionOf(body any) string {
	switch b := body.(type) {
	case ocSession:
		return b.SessionID
	case ocStatus:
		return b.SessionID
	case ocError:
		return b.SessionID
	case ocMessage:
		return b.SessionID
	case ocSessionDeleted:
		return b.SessionID
	case events.TurnLost:
		return b.Session
	}
	return ""
}

// Subagents lists a chat's subagents in the order they were started.
func (m *Model) Subagents(ctx context.Context, chat string) ([]Subagent, error) {
	return list[Subagent](ctx, m, "subagents of "+chat, "SELECT * FROM subagents WHERE chat={:chat} ORDER BY position", dbx.Params{"chat": chat})
}
