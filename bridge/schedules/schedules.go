// Package schedules waits for the due times of schedules, and starts their runs. It stops a run that has spent its own
// budget.
//
// Promises: pending work follows from the log and the read models, so a new process continues where the last one
// stopped, and several processes start each run once. A machine that slept, or whose clock was changed, is noticed
// within 30 s.
//
// It must not know when a schedule is due, or how a turn runs.
package schedules

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
)

// Watch starts the runs of schedules. All fields but Uncertain must be set.
type Watch struct {
	Schedules *schedule.Schedules
	Chats     *chat.Chats
	Model     *projections.Model
	Logger    *slog.Logger

	// events are lost, so that a run that is due at the start may have been done: it is skipped
	Uncertain bool
}

// longest is the longest time between two looks at the wall clock.
const longest = 30 * time.Second

// Run watches until ctx ends.
func (w Watch) Run(ctx context.Context) error {
	return w.Model.Watch(ctx, w.Logger, "schedules", time.Second, w.look)
}

// look carries out the pending work. next is the time after which it must run again even without an event.
func (w *Watch) look(ctx context.Context) (next time.Duration, err error) {
	if err := w.stopSpent(ctx); err != nil {
		return 0, err
	}
	if err := w.startDue(ctx); err != nil {
		return 0, err
	}
	w.Uncertain = false
	_, at, err := w.Schedules.Due(ctx)
	if err != nil || at.IsZero() {
		return longest, err
	}
	return min(max(time.Until(at), time.Millisecond), longest), nil
}

// startDue starts the runs of the schedules that are due. One that fails does not affect the others.
func (w Watch) startDue(ctx context.Context) error {
	due, _, err := w.Schedules.Due(ctx)
	if err != nil || len(due) == 0 {
		return err
	}
	open, err := w.Model.OpenScheduleRuns(ctx)
	if err != nil {
		return err
	}
	isBusy := map[string]bool{}
	for _, r := range open {
		isBusy[r.Schedule] = true
	}
	var failed error
	for _, id := range due {
		started, err := w.Schedules.Run(ctx, schedule.Run{Schedule: id, Busy: isBusy[id], Uncertain: w.Uncertain})
		if err == nil {
			err = w.Model.Wait(ctx, started.Seq)
		}
		failed = cmp.Or(failed, err)
	}
	return failed
}

// stopSpent stops the runs that have spent their own budget. The cost of a step is known at its end.
func (w Watch) stopSpent(ctx context.Context) error {
	open, err := w.Model.OpenScheduleRuns(ctx)
	for _, r := range open {
		if r.MaxCost == 0 || r.Cost < r.MaxCost || r.Reason != "" {
			continue
		}
		var seq uint64
		seq, err = w.Chats.AbortTurn(ctx, chat.AbortTurn{Chat: r.Chat,
			Command: handlers.Command{ID: projections.StopOfRun(r.ID), Actor: events.ScheduleActor(r.Schedule)}})
		if handlers.CodeOf(err) != "" { // the turn is over, or the chat was deleted
			err = nil
			continue
		}
		if err == nil {
			err = w.Model.Wait(ctx, seq)
		}
		if err != nil {
			return err
		}
	}
	return err
}
