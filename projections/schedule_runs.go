package projections

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// RunSkipped is the state of a run that was due and started nothing. The other states are those of a turn.
const RunSkipped = "skipped"

// ScheduleCollection is the config collection of the schedules.
const ScheduleCollection = "schedules"

// ScheduleRun is a run of a schedule: the message that it started, and the end of its turn. A run ends at the event
// that ends the turn of its message. Later events in its chat do not change it. A due time that was skipped is a run
// with the state RunSkipped.
type ScheduleRun struct {
	store.Record        // the id is that of the message, or of the event that skipped the run
	Schedule     string `db:"schedule" json:"schedule"` // record
	Chat         string `db:"chat" json:"chat"`
	Due          string `db:"due" json:"due"`
	FirstDue     string `db:"first_due" json:"first_due"` // the first due time that it covers; empty for its own alone
	Manual       bool   `db:"manual" json:"manual"`       // a person or an agent started it
	State        string `db:"state" json:"state"`
	Reason       string `db:"reason" json:"reason"`     // why it was skipped or stopped
	Started      string `db:"started" json:"started"`   // when its message was sent first; empty before
	Finished     string `db:"finished" json:"finished"` // empty while it is not over
	// in US dollars, 0 is no limit
	MaxCost  float64 `db:"max_cost" json:"max_cost"`
	Began    int64   `db:"began" json:"-"` // sequences of these events, 0 for none
	Ended    int64   `db:"ended" json:"-"`
	Position int64   `db:"position" json:"-"`
}

// IsOver reports whether a run has ended or was skipped.
func (r ScheduleRun) IsOver() bool { return r.State == RunSkipped || turnstate.Ended(r.State) }

// addScheduleRun applies an event about a schedule. at is the time of the event.
func addScheduleRun(t *store.Table[ScheduleRun], e events.Event, body any, at string) {
	switch b := body.(type) {
	case events.ScheduleFired:
		r, found := t.Get(b.Message)
		if found {
			return // the event was appended twice
		}
		r.Schedule, r.Chat, r.Due, r.FirstDue = e.Subject.ID, b.Chat, formatTime(b.Due), formatTime(b.First)
		r.Manual, r.MaxCost, r.State, r.Position = b.Manual, b.MaxCost, turnstate.Queued, int64(e.Seq)
		t.Put(r)
	case events.ScheduleSkipped:
		r, _ := t.Get(e.ID)
		r.Schedule, r.Due, r.FirstDue, r.State = e.Subject.ID, formatTime(b.Due), formatTime(b.First), RunSkipped
		r.Reason, r.Finished, r.Position = b.Reason, at, int64(e.Seq)
		t.Put(r)
	}
}

// formatTime returns a time in the form of records, "" for the zero time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(events.TimeFormat)
}

// updateScheduleRuns runs after chats, sessions and messages.
func updateScheduleRuns(all *tables, e events.Event, body any) error {
	c, found := all.chats.Get(e.Subject.ID)
	if b, ok := body.(events.MessageSubmitted); !found || c.Scheduled == "" && (!ok || b.Schedule == "") {
		return nil
	}
	t, at := all.scheduleRuns, all.tx.EventTime()
	open := strings.Fields(c.Scheduled)
	if b, ok := body.(events.MessageSubmitted); ok && b.Schedule != "" {
		if r, found := t.Get(b.Message); found && r.Chat == c.ID && !r.IsOver() && !slices.Contains(open, r.ID) {
			open = append(open, r.ID)
		}
	}
	c.Scheduled = strings.Join(slices.DeleteFunc(open, func(id string) bool {
		r, _ := t.Get(id)
		before := r.State
		r.State = all.stateOfTurn(id, c, body, r.State)
		r.stopBy(e, body)
		if b, ok := body.(events.MessageSending); ok && b.Message == id && r.Began == 0 {
			r.Began, r.Started = int64(e.Seq), at
		}
		if r.IsOver() {
			r.Ended, r.Finished = int64(e.Seq), at
		}
		if r.State != before {
			all.config.Touch(ScheduleCollection + "/" + r.Schedule)
		}
		t.Put(r)
		return r.IsOver()
	}), " ")
	all.chats.Put(c)
	return nil
}

// stopBy records that the run is being stopped because its own budget is spent.
func (r *ScheduleRun) stopBy(e events.Event, body any) {
	_, isAbort := body.(events.AbortRequested)
	if isAbort && e.Actor == events.ScheduleActor(r.Schedule) && e.Cause == StopOfRun(r.ID) {
		r.Reason = "The budget of this run is spent."
	}
}

// StopOfRun returns the id of the command that stops a run whose budget is spent.
func StopOfRun(run string) string { return "spent-" + run }

// RunCost is the SQL expression for the cost of a run t: in its chat, its subagents and its delegates.
const RunCost = `coalesce((SELECT sum(m.cost) FROM chats c JOIN messages m ON m.chat=c.id WHERE c.root=(SELECT root FROM chats WHERE id=t.chat)
	AND m.role='assistant' AND NOT m.copied AND t.began>0 AND m.position>=t.began AND (t.ended=0 OR m.position<=t.ended)), 0.0)`

// RunState returns the SQL expression for the state of a run with an alias, by how its answer ended: the state in the
// row says only that the turn is over.
func RunState(run string) string {
	return "CASE WHEN " + run + ".state='completed' THEN ending_state(" + endingOfRun(run) + ") ELSE " + run + ".state END"
}

// RunReason returns the SQL expression for why a run with an alias was skipped, was stopped or has no whole answer.
func RunReason(run string) string {
	return "CASE WHEN " + run + ".state='completed' AND " + run + ".reason='' THEN ending_sentence(" + endingOfRun(run) +
		") ELSE " + run + ".reason END"
}

// endingOfRun returns the SQL expression for how the turn of a run ended.
func endingOfRun(run string) string {
	return strings.ReplaceAll(`coalesce((SELECT `+EndingOfTurn("run.state", "last")+` FROM messages prompt JOIN messages last
		ON last.chat=prompt.chat AND last.session=prompt.session AND last.role='assistant' AND NOT last.removed
			AND last.parent_id>=prompt.ai_engine_message_id AND last.position<=run.ended
		WHERE prompt.id=run.id ORDER BY last.position DESC LIMIT 1), 'complete')`, "run.", run+".")
}

// PricedRun is a run with its cost so far.
type PricedRun struct {
	ScheduleRun
	Cost float64 `db:"cost" json:"cost"`
}

var selectPricedRuns = "SELECT t.*, " + RunCost + " AS cost, " + RunState("t") + " AS state, " + RunReason("t") +
	" AS reason FROM schedule_runs t"

// ScheduleRuns lists the newest runs of a schedule, or of all schedules, the newest first.
func (m *Model) ScheduleRuns(ctx context.Context, schedule string, limit int) ([]PricedRun, error) {
	return store.List[PricedRun](ctx, m.Model, "runs of schedules", selectPricedRuns+
		store.Narrowed(dbx.Params{"schedule": schedule})+" ORDER BY t.position DESC LIMIT {:limit}",
		dbx.Params{"schedule": schedule, "limit": limit})
}

// OpenScheduleRuns lists the runs that are not over.
func (m *Model) OpenScheduleRuns(ctx context.Context) ([]PricedRun, error) {
	return store.List[PricedRun](ctx, m.Model, "open runs of schedules", selectPricedRuns+
		" WHERE t.finished='' ORDER BY t.position", nil)
}
