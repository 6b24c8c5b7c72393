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

// SubagentRunning is the status of a subagent that has not ended; it ends as its last message does.
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
	if turnstate.Ended(s.TurnState) && s.TurnState != "" {
		status = endStatus(s.TurnState)
	}
	if status != a.Status {
		a.Status, a.Finished = status, ""
		if status != SubagentRunning {
			a.Finished = t.tx.EventTime()
		}
	}
	t.subagents.Put(a)
}

// ShownSubagent is a subagent and its status by its last answer, which may not be complete.
type ShownSubagent struct {
	Subagent
	Ended string `db:"ended"`
}

// SelectSubagents selects ShownSubagents with the alias a. A condition follows it.
var SelectSubagents = "SELECT a.*, " + StatusOfSubagent("a") + " AS ended FROM subagents a WHERE "

// Shown returns the subagents with the status by their last answers.
func Shown(rows []ShownSubagent) []Subagent {
	all := make([]Subagent, len(rows))
	for i, row := range rows {
		all[i], all[i].Status = row.Subagent, row.Ended
	}
	return all
}

// Subagents lists a chat's subagents in the order they were started.
func (m *Model) Subagents(ctx context.Context, chat string) ([]Subagent, error) {
	rows, err := store.List[ShownSubagent](ctx, m.Model, "subagents of "+chat,
		SelectSubagents+"a.chat={:chat} ORDER BY a.position", dbx.Params{"chat": chat})
	return Shown(rows), err
}
