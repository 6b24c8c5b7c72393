package projections

import (
	"context"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// RunSkipped is the state of a run that was due and started nothing. The other states are those of a turn.
const RunSkipped = "skipped"

// ScheduleCollection is the config collection of the schedules.
const ScheduleCollection = "schedules"

// ScheduleRun is a run of a schedule: the turn of the message that it started. A due time that was skipped is a run
// with the state RunSkipped.
type ScheduleRun struct {
	store.Record        // the id is that of the message, or of the event that skipped the run
	Schedule     string `db:"schedule" json:"schedule"` // record
	Chat         string `db:"chat" json:"chat"`
	Due          string `db:"due" json:"due"`
	FirstDue     string `db:"first_due" json:"first_due"` // the first due time that it covers; empty for its own alone
	Manual       bool   `db:"manual" json:"manual"`       // a person or an agent started it
	State        string `db:"state" json:"state"`
	Reason       string `db:"reason" json:"reason"`     // why it was skipped, was stopped or has no complete answer
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
		r.Schedule, r.Chat, r.Due, r.FirstDue = e.Subject.ID, b.Chat, events.FormatTime(b.Due), events.FormatTime(b.First)
		r.Manual, r.MaxCost, r.State, r.Position = b.Manual, b.MaxCost, turnstate.Queued, int64(e.Seq)
		t.Put(r)
	case events.ScheduleSkipped:
		r, _ := t.Get(e.ID)
		r.Schedule, r.State = e.Subject.ID, RunSkipped
		r.Due, r.FirstDue = events.FormatTime(b.Due), events.FormatTime(b.First)
		r.Reason, r.Finished, r.Position = b.Reason, at, int64(e.Seq)
		t.Put(r)
	}
}

// followRun changes the run of a turn that has changed. How the turn ended is its reason, unless it has another one.
func (t *tables) followRun(before, now Turn) {
	m, _ := t.messages.Get(now.ID)
	if m.Schedule == "" {
		return
	}
	r, found := t.scheduleRuns.Get(now.ID)
	if !found || r.Chat != now.Chat {
		return
	}
	if r.State != now.State {
		t.config.Touch(ScheduleCollection + "/" + r.Schedule)
	}
	r.State, r.Started, r.Finished, r.Began, r.Ended = now.State, now.Started, now.Finished, now.Began, now.Ended
	if r.Reason == before.Ending.Sentence() {
		r.Reason = now.Ending.Sentence()
	}
	t.scheduleRuns.Put(r)
}

// updateScheduleRuns records that a run is being stopped because its own budget is spent.
func updateScheduleRuns(t *tables, e events.Event, body any) error {
	run, isSpent := strings.CutPrefix(e.Cause, StopOfRun(""))
	if _, isAbort := body.(events.AbortRequested); !isAbort || !isSpent {
		return nil
	}
	if r, found := t.scheduleRuns.Get(run); found && !r.IsOver() && e.Actor == events.ScheduleActor(r.Schedule) {
		r.Reason = "The budget of this run is spent."
		t.scheduleRuns.Put(r)
	}
	return nil
}

// StopOfRun returns the id of the command that stops a run whose budget is spent.
func StopOfRun(run string) string { return "spent-" + run }

// RunCost is the SQL expression for the cost of a run t: in its chat, its subagents and its delegates.
const RunCost = `coalesce((SELECT sum(m.cost) FROM chats c JOIN messages m ON m.chat=c.id WHERE c.root=(SELECT root FROM chats WHERE id=t.chat)
	AND m.role='assistant' AND NOT m.copied AND t.began>0 AND m.position>=t.began AND (t.ended=0 OR m.position<=t.ended)), 0.0)`

// PricedRun is a run with its cost so far.
type PricedRun struct {
	ScheduleRun
	Cost float64 `db:"cost" json:"cost"`
}

const selectPricedRuns = "SELECT t.*, " + RunCost + " AS cost FROM schedule_runs t"

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
