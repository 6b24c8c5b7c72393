package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
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

// SubagentRunning is the status of a subagent that has not ended. Without a complete answer it has failed.
const SubagentRunning = "running"

// putSubagent stores the subagent of a session. It is running while the turn of its session is. A subagent without a
// message has not begun yet, and counts as running.
func (t *tables) putSubagent(s Session) {
	a, found := t.subagents.Get(store.RecordID(s.ID))
	if !found {
		a.Session, a.Chat, a.Started, a.Position = s.ID, s.Chat, t.tx.EventTime(), t.tx.Seq()
	}
	a.Delegating, a.Agent, a.Title = s.Parent, s.Agent, s.Title
	status := SubagentRunning
	if state := s.State(s.Runs); turnstate.Ended(state) && state != "" {
		state, _ = turnstate.End(state, t.reported(s.Newest).step())
		status = endStatus(state)
	}
	if status != a.Status {
		a.Status, a.Finished = status, ""
		if status != SubagentRunning {
			a.Finished = t.tx.EventTime()
		}
	}
	t.subagents.Put(a)
}

// Subagents lists a chat's subagents in the order they were started.
func (m *Model) Subagents(ctx context.Context, chat string) ([]Subagent, error) {
	return store.List[Subagent](ctx, m.Model, "subagents of "+chat,
		"SELECT * FROM subagents WHERE chat={:chat} ORDER BY position", dbx.Params{"chat": chat})
}
