package watch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/delegate"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

// Delegates watches the turns of delegates. It records the result of a turn that is over, reports results to a parent
// that is idle, and reports a delegate in which nothing happens. All fields but SilentAfter and Pause must be set.
type Delegates struct {
	Delegates   *delegate.Delegates
	Log         *log.Log
	Model       *projections.Model
	Logger      *slog.Logger
	SilentAfter time.Duration // 0 for defaultSilence
	Pause       time.Duration // after a failure; 0 for a second

	searched uint64 // sequence of the last search that left no orphan; a later one needs a change after it
}

// defaultSilence is the time without an event after which a running delegate is reported.
const defaultSilence = 10 * time.Minute

// Run watches until ctx ends.
func (w Delegates) Run(ctx context.Context) error {
	return w.Model.Watch(ctx, w.Logger, "delegates", cmp.Or(w.Pause, time.Second), w.look)
}

// look carries out the pending work. An error of one delegate does not affect the others. next is the time after
// which it must run again even without an event.
func (w *Delegates) look(ctx context.Context) (next time.Duration, err error) {
	err = errors.Join(w.deleteOrphans(ctx), w.finish(ctx), w.closeWorktrees(ctx))
	next, silent := w.silent(ctx)
	return next, errors.Join(err, silent, w.report(ctx))
}

// awaitEvent waits until the read model includes the event that a command appended at seq. It returns the command's
// error, if there is one.
func (w Delegates) awaitEvent(ctx context.Context, seq uint64, err error) error {
	if err != nil {
		return err
	}
	return w.Model.Wait(ctx, seq)
}

// deleteOrphans deletes the delegates of chats that were deleted, which also stops them. Those below them follow.
func (w *Delegates) deleteOrphans(ctx context.Context) error {
	seq := w.Model.Seq()
	orphans, err := w.Model.OrphanedDelegates(ctx, w.searched)
	for _, id := range orphans {
		c := chat.Delete{Command: handlers.Command{Actor: events.ActorSystem}, Chat: id}
		deleted, failed := w.Delegates.Chats.Delete(ctx, c)
		err = errors.Join(err, w.awaitEvent(ctx, deleted, failed))
	}
	if err == nil {
		w.searched = seq
	}
	return err
}

// closeWorktrees removes the git worktrees of deleted delegates.
func (w Delegates) closeWorktrees(ctx context.Context) error {
	open, err := w.Model.OpenWorktrees(ctx)
	for _, t := range open {
		closed, seq, failed := w.Delegates.CloseWorktree(ctx, delegate.CloseWorktree{Delegate: t.Delegate,
			Worktree: t.Worktree, Branch: t.Branch})
		if failed == nil && closed.Kept != "" {
			w.Logger.Warn("the git worktree of a deleted delegate is kept", "delegate", t.Delegate, "worktree", closed.Worktree,
				"branch", closed.Branch, "reason", closed.Kept)
		}
		err = errors.Join(err, w.awaitEvent(ctx, seq, failed))
	}
	return err
}

// finish records the results of turns that are over.
func (w Delegates) finish(ctx context.Context) error {
	ended, err := w.Model.EndedDelegateTurns(ctx)
	for _, d := range ended {
		seq, failed := w.Delegates.Finish(ctx, delegate.Finish{Delegate: d.Delegate, Message: d.Message,
			Status: d.State, Text: resultText(d)})
		err = errors.Join(err, w.awaitEvent(ctx, seq, failed))
	}
	return err
}

// resultText returns the result of a turn, or why there is none.
func resultText(d projections.EndedDelegateTurn) string {
	if d.Ending == turnstate.EndComplete {
		return cmp.Or(d.Text, "The delegate ended its turn without a text.")
	}
	why := cmp.Or(map[turnstate.Ending]string{
		turnstate.EndStopped: "The delegate was stopped.",
		turnstate.EndLost:    turnstate.EndLost.Sentence() + " The delegate's changes until then remain.",
		turnstate.EndFailed:  "The delegate failed.",
	}[d.Ending], d.Ending.Sentence())
	if _, message := projections.ErrorOf(string(d.Error)); message != "" && d.Ending == turnstate.EndFailed {
		why += " " + message
	}
	if d.Text != "" {
		why += "\nIts last text:\n" + d.Text
	}
	return why
}

// report sends idle parents the results and silences that were not reported to them.
func (w Delegates) report(ctx context.Context) error {
	all, err := w.Model.UnreportedResults(ctx)
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Parent == all[0].Parent {
			n++
		}
		seq, failed := w.Delegates.Report(ctx, all[0].Parent, reportsOf(all[:n]))
		err = errors.Join(err, w.awaitEvent(ctx, seq, failed))
		all = all[n:]
	}
	return err
}

func reportsOf(all []projections.UnreportedResult) (reports []delegate.Report) {
	for _, u := range all {
		r := delegate.Report{Delegate: u.Delegate, Title: u.Title, Message: u.Message, Status: u.State, Text: u.Text}
		if u.Silent != "" {
			r.Since, _ = time.Parse(events.TimeFormat, u.Silent) // the column always holds a time
		}
		reports = append(reports, r)
	}
	return reports
}

// silent records the running delegates without an event for SilentAfter. next is the time until the next delegate may
// be silent.
func (w Delegates) silent(ctx context.Context) (next time.Duration, err error) {
	next = cmp.Or(w.SilentAfter, defaultSilence)
	running, err := w.Model.RunningDelegates(ctx)
	for _, d := range running {
		left, failed := w.silentOne(ctx, d)
		if err = errors.Join(err, failed); left > 0 {
			next = min(next, left)
		}
	}
	return next, err
}

// silentOne records that a running delegate is silent. It returns the time until the delegate may be, 0 if it is
// silent.
func (w Delegates) silentOne(ctx context.Context, d projections.RunningDelegate) (left time.Duration, err error) {
	last, err := w.Log.Newest(ctx, events.ChatFilter(d.Delegate))
	if err != nil {
		return 0, err
	}
	at, err := w.Log.Stored(ctx, last)
	if err != nil {
		return 0, err
	}
	if left := time.Until(at.Add(cmp.Or(w.SilentAfter, defaultSilence))); left > 0 {
		return left, nil
	}
	seq, err := w.Delegates.Silent(ctx, d.Delegate, d.Message, at)
	return 0, w.awaitEvent(ctx, seq, err)
}

// killAfter is how long the commands of a stopped delegate have to end by themselves.
const killAfter = 3 * time.Second

// EndCommands ends the running commands of a chat, including those in the background, but not the shells of people. It
// sends TERM, and KILL to the commands that still run after killAfter.
func EndCommands(ctx context.Context, m *projections.Model, chat string,
	signal func(ctx context.Context, exec, signal string) error) error {
	for _, name := range []string{"TERM", "KILL"} {
		running, err := m.RunningCommands(ctx, chat)
		if err != nil || len(running) == 0 {
			return err
		}
		for _, exec := range running {
			if err := signal(ctx, exec, name); err != nil && handlers.CodeOf(err) != handlers.Conflict { // it has ended
				return err
			}
		}
		waiting, cancel := context.WithTimeout(ctx, killAfter)
		for waiting.Err() == nil {
			woken := m.Woken()
			if running, err = m.RunningCommands(ctx, chat); err != nil || len(running) == 0 {
				cancel()
				return err
			}
			_ = m.Awake(waiting, woken)
		}
		cancel()
	}
	return nil
}
