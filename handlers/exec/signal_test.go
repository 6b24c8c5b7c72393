package exec

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/sandbox/wire"
)

func TestSignalIsRecordedAndReachesTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	line, done := make(lineWriter, 1), make(chan wire.Result, 1)
	r := s.authorized("trap 'exit 5' USR1; echo ready; while :; do sleep 0.02; done")
	go func() { done <- s.exec.Exec(t.Context(), r, line, io.Discard) }()
	is.Equal(<-line, "ready")
	exec := s.execOf(r.Call)
	_, err := s.exec.Signal(t.Context(), Signal{Command: handlers.Command{ID: "cmd1", Actor: handlerstest.Alice},
		Execution: exec, Signal: "usr1"})
	is.NoErr(err)
	is.Equal((<-done).ExitCode, 5)
	s.finished(exec)
	all, data := handlerstest.History(t, s.Log, "c1")
	var kinds []string
	for i, d := range data {
		if signalled, ok := d.(events.ExecSignalled); ok {
			is.Equal(signalled, events.ExecSignalled{Exec: exec, Signal: "SIGUSR1"})
			is.Equal([]string{all[i].Actor, all[i].Cause}, []string{handlerstest.Alice, "cmd1"})
		}
		if all[i].Subject.Kind[:5] == "exec." {
			kinds = append(kinds, all[i].Subject.Kind)
		}
	}
	is.Equal(kinds, []string{"exec.requested", "exec.signalled", "exec.finished"})

	_, err = s.exec.Signal(t.Context(), Signal{Execution: exec})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	is.Equal(err.Error(), "execution "+exec+" is not running")
}

func TestOtherSignalsAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	exec, _ := s.detached(untilStop)
	for _, signal := range []string{"SIGSEGV", "9", "SIG", "SIGTERM ", "TERM\x00", "SIGSIGTERM"} {
		_, err := s.exec.Signal(t.Context(), Signal{Command: handlers.Command{Actor: handlerstest.Alice}, Execution: exec,
			Signal: signal})
		is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
		is.Equal(err.Error(), "signal: want one of TERM, INT, HUP, KILL, USR1, USR2, QUIT, STOP, CONT")
	}
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecSignalled](data)), 0)
	// SIGTERM
	_, err := s.exec.Signal(t.Context(), Signal{Command: handlers.Command{Actor: handlerstest.Alice}, Execution: exec})
	is.NoErr(err)
	d := s.finished(exec)
	is.Equal([]string{d.Signal, d.Reason}, []string{"SIGTERM", ""})
}

func TestARepeatedSignalIsSentOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	exec, _ := s.detached("n=0; trap 'n=$((n+1))' USR1; trap 'exit $n' TERM; echo up $$; while :; do sleep 0.02; done")
	u, _ := s.exec.running.get(exec)
	send := func(id, signal string) uint64 {
		seq, err := s.exec.Signal(t.Context(), Signal{Command: handlers.Command{ID: id, Actor: handlerstest.Alice},
			Execution: exec, Signal: signal})
		is.NoErr(err)
		return seq
	}
	first := send("cmd1", "USR1")
	is.Equal(send("cmd1", "USR1"), first)
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecSignalled](data)), 1)
	is.True(send("cmd2", "STOP") > first)
	one := send("", "CONT")
	is.True(send("", "CONT") > one) // a command without an id is never a repetition
	is.Equal(len(u.signals), 2)
	send("cmd3", "TERM")
	is.Equal(s.finished(exec).ExitCode, 1)
	_, err := s.exec.Signal(t.Context(), Signal{Command: handlers.Command{ID: "cmd3", Actor: handlerstest.Alice},
		Execution: exec})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
}

// A repeated command sends a recorded signal that could not be sent before.
func TestAnUnsentSignalIsSentWhenItIsRepeated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	x := &Executions{Log: eventstest.Log(t)}
	u := x.newRun("c1", "", events.ExecRequested{Exec: "x1"})
	close(u.started)
	u.end = func() {}
	x.running.add(u)
	for range pendingInput {
		u.input <- wire.Input{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, failed := Signal{Command: handlers.Command{ID: "cmd1", Actor: handlerstest.Alice}, Execution: "x1"},
		make(chan error, 1)
	go func() { _, err := x.Signal(ctx, c); failed <- err }()
	recorded, _ := handlerstest.Await(t, x.Log, func(events.ExecSignalled) bool { return true })
	cancel()
	is.True(errors.Is(<-failed, context.Canceled))
	for range pendingInput {
		<-u.input
	}
	for range 2 {
		seq, err := x.Signal(t.Context(), c)
		is.NoErr(err)
		is.Equal(seq, recorded.Seq)
	}
	is.Equal(len(u.input), 1)
	is.Equal((<-u.input).Signal, "SIGTERM")
}
