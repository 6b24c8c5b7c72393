package permission

import (
	"cmp"
	"time"

	"pocketcoder/events"
	"pocketcoder/sandbox/wire"
)

// WhyExecution is an execution that the decision started, or an attempt that was refused.
type WhyExecution struct {
	ID       string    `json:"id"`
	Command  string    `json:"command"`
	Original string    `json:"original,omitempty"`
	Cwd      string    `json:"cwd"`
	Status   string    `json:"status"` // executing, completed, failed, refused, cancelled, timeout, lost, a limit's name
	Reason   string    `json:"reason,omitempty"`
	ExitCode int       `json:"exit_code"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`

	Signals []WhySignal `json:"signals,omitempty"`
}

// WhySignal is a signal that was sent to an execution.
type WhySignal struct {
	Signal string    `json:"signal"` // SIGTERM, …
	Actor  string    `json:"actor"`
	At     time.Time `json:"at"`
}

// applyExec updates the executions with an event, and reports whether the event is about one of them. The event of a
// refused attempt names no decision, so applyExec matches it by its tool call.
func (w *explanation) applyExec(e events.Event, d events.Data) bool {
	switch d := d.(type) {
	case events.ExecRequested:
		if d.Permission != w.Permission {
			return false
		}
		w.execs[d.Exec] = len(w.Executions)
		w.Executions = append(w.Executions, WhyExecution{
			ID: d.Exec, Command: d.Command, Original: d.Original, Cwd: d.Cwd, Status: events.ExecutionRunning, Started: e.Time,
		})
	case events.ExecRefused:
		if w.request.ViaAPI || d.Call != w.Request.Call || d.Session != w.Request.Session {
			return false
		}
		w.Executions = append(w.Executions, WhyExecution{
			ID: d.Exec, Command: d.Command, Cwd: d.Cwd, Status: events.ExecutionRefused, Reason: d.Reason, ExitCode: wire.ExitRefused, Finished: e.Time,
		})
	case events.ExecFinished:
		if !w.ran(d.Exec) {
			return false
		}
		x := &w.Executions[w.execs[d.Exec]]
		x.ExitCode, x.Reason, x.Finished, x.Status = d.ExitCode, cmp.Or(d.Error, d.Reason), e.Time, d.Status
	case events.ExecConnected:
		return d.Permission == w.Permission
	case events.ExecStarted:
		return w.ran(d.Exec)
	case events.ExecSignalled:
		if !w.ran(d.Exec) {
			return false
		}
		x := &w.Executions[w.execs[d.Exec]]
		x.Signals = append(x.Signals, WhySignal{d.Signal, e.Actor, e.Time})
	case events.ExecChanged:
		return w.ran(d.Exec)
	default:
		return false
	}
	return true
}

// ran reports whether the decision started an execution.
func (w *explanation) ran(exec string) bool {
	_, ours := w.execs[exec]
	return ours
}
