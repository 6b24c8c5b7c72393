package exec

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/sandbox/wire"
)

// Signal is the command to send a signal to all processes of a running execution.
type Signal struct {
	handlers.Command
	Execution string `json:"execution"`
	// TERM or SIGTERM. If empty: TERM, or HUP for a person's shell, because shells ignore TERM
	Signal string `json:"signal"`
}

// Signals are the names of the signals that can be sent.
var Signals = []string{"TERM", "INT", "HUP", "KILL", "USR1", "USR2", "QUIT", "STOP", "CONT"}

// SignalName returns the short name of a signal: TERM for SIGTERM, term and sigterm.
func SignalName(signal string) string { return strings.TrimPrefix(strings.ToUpper(signal), "SIG") }

// sentSignal is a signal that was recorded, sent, or both.
type sentSignal struct {
	seq  uint64 // of its event; 0 if the log stored nothing
	sent bool
}

// Signal records the signal and sends it. A repeated command has no further effect. Signal returns a refusal if the
// execution has ended.
//
// To stop a command must not need disk space. So Signal also sends a signal that the log cannot store at present: its
// sequence is 0, and its event is stored with the result of the execution.
func (x *Executions) Signal(ctx context.Context, c Signal) (uint64, error) {
	if c.Signal != "" && !slices.Contains(Signals, SignalName(c.Signal)) {
		return 0, handlers.RefuseField(handlers.Invalid, "signal", "signal: want one of %s", strings.Join(Signals, ", "))
	}
	u, ok := x.running.get(c.Execution)
	if !ok {
		return 0, handlers.RefuseField(handlers.Conflict, "execution", "execution %s is not running", c.Execution)
	}
	if _, ok := u.startInfo(); !ok {
		return 0, handlers.RefuseField(handlers.Conflict, "execution", "execution %s has not started yet", c.Execution)
	}
	ends := "TERM"
	if u.requested.Terminal {
		ends = "HUP"
	}
	c.Signal = "SIG" + SignalName(cmp.Or(c.Signal, ends))
	return x.signal(ctx, u, c)
}

func (x *Executions) signal(ctx context.Context, u *run, c Signal) (uint64, error) {
	u.signalling.Lock()
	defer u.signalling.Unlock()
	s, known := u.signals[c.ID]
	if !known {
		var err error
		if s.seq, err = x.recordSignal(ctx, u, c); err != nil {
			return 0, err
		}
	}
	var err error
	if !s.sent {
		err = u.sendInput(ctx, wire.Input{Signal: c.Signal})
		s.sent = err == nil
	}
	if c.ID != "" {
		u.signals[c.ID] = s
	}
	return s.seq, err
}

// signalRecordTime is how long a signal waits until the log has stored its event.
const signalRecordTime = 3 * time.Second

// recordSignal returns the sequence of the event, or 0 if it is to be stored with the result. The caller holds
// u.signalling.
func (x *Executions) recordSignal(ctx context.Context, u *run, c Signal) (uint64, error) {
	e, err := events.New(u.chat, c.Actor, events.ExecSignalled{Exec: c.Execution, Signal: c.Signal})
	if err != nil {
		return 0, err
	}
	e = e.CausedBy(c.ID)
	waiting, cancel := context.WithTimeout(ctx, signalRecordTime)
	defer cancel()
	seq, err := x.Log.Append(waiting, e)
	if err == nil || ctx.Err() != nil || !log.IsUnavailable(err) {
		return seq, err
	}
	x.Logger.Error("record a signal; it is sent", "exec", c.Execution, "signal", c.Signal, "actor", c.Actor, "err", err)
	u.unrecorded = append(u.unrecorded, e)
	return 0, nil
}

// sendInput forwards input to the worker. It ignores executions that have ended.
func (u *run) sendInput(ctx context.Context, in wire.Input) error {
	select {
	case u.input <- in:
		return nil
	case <-u.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
