package watch

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

// Schedules waits for the due times of schedules, and starts their runs. It stops a run that has spent its own budget.
// All fields but Uncertain must be set.
type Schedules struct {
	Schedules *schedule.Schedules
	Chats     *chat.Chats
	Model     *projections.Model
	Logger    *slog.Logger

	// events are lost, so that a run that is due at the start may have been done: it is skipped
	Uncertain bool
}

// longestWait is the longest time between two looks at the wall clock.
const longestWait = 30 * time.Second

// Run watches until ctx ends.
func (w Schedules) Run(ctx context.Context) error {
	return w.Model.Watch(ctx, w.Logger, "schedules", time.Second, w.look)
}

// look carries out the pending work. next is the time after which it must run again even without an event.
func (w *Schedules) look(ctx context.Context) (next time.Duration, err error) {
	if err := w.stopSpent(ctx); err != nil {
		return 0, err
	}
	if err := w.startDue(ctx); err != nil {
		return 0, err
	}
	w.Uncertain = false
	_, at, err := w.Schedules.Due(ctx)
	if err != nil || at.IsZero() {
		return longestWait, err
	}
	return min(max(time.Until(at), time.Millisecond), longestWait), nil
}

// startDue starts the runs of the schedules that are due. One that fails does not affect the others.
func (w Schedules) startDue(ctx context.Context) error {
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
func (w Schedules) stopSpent(ctx context.Context) error {
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
