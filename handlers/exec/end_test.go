package exec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

func TestCancelledCommandIsRecordedAsCancelled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	ctx, cancel := context.WithCancel(t.Context())
	line, done := make(lineWriter, 1), make(chan wire.Result, 1)
	r := s.authorized("echo $$; sleep 1000 & wait")
	go func() { done <- s.exec.Exec(ctx, r, line, io.Discard) }()
	pid, err := strconv.Atoi(<-line)
	is.NoErr(err)
	cancel()
	is.Equal((<-done).Reason, wire.Cancelled)
	d := s.finished()
	is.Equal(d.Reason, string(wire.Cancelled))
	is.Equal(d.Signal, "SIGTERM")
	is.Equal(d.Stdout.Text, fmt.Sprintln(pid)) // the output so far is recorded
	expect.Eventually(t, "its processes end", func() bool { return syscall.Kill(-pid, 0) == syscall.ESRCH })
}

func TestStopOfTheHandlersRecordsWhatRan(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	line := make(lineWriter, 1)
	r := s.authorized("echo started; exec sleep 1000")
	go s.exec.Exec(t.Context(), r, line, io.Discard)
	is.Equal(<-line, "started")
	s.stop()
	is.Equal(s.finished().Reason, string(wire.Cancelled))
}

func TestCommandOfAKilledWorkerIsLostAndItsOutputKept(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, worker := withWorkerProcess(t)
	line, done, began := make(lineWriter, 1), make(chan wire.Result, 1), time.Now()
	r := s.authorized("echo $$; exec sleep 1000")
	go func() { done <- s.exec.Exec(t.Context(), r, line, io.Discard) }()
	pid, err := strconv.Atoi(<-line)
	is.NoErr(err)
	is.NoErr(worker.Process.Kill())
	is.Equal((<-done).Reason, wire.Lost)
	d := s.finished()
	is.Equal(d.Reason, string(wire.Lost))
	is.Equal(d.ExitCode, wire.ExitLost)
	is.True(d.Error != "")
	is.True(d.DurationMS > 0 && d.DurationMS <= time.Since(began).Milliseconds())
	is.Equal(d.Stdout.Text, fmt.Sprintln(pid))
	result, _, _ := s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 126) // it does not run again
}

func TestExecutionOfADeadProcessIsRecordedAsLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	is.NoErr((&Executions{Log: s.Log}).RecordLost(t.Context(), "c1", "x1"))
	d := s.finished()
	is.Equal(d, events.ExecFinished{Exec: "x1", Status: "lost", ExitCode: wire.ExitLost, Reason: "lost",
		Error: "the system stopped while the command was running"})
}

func TestWithoutAWorkerTheCommandIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	result, _, _ := s.shell(t.Context(), s.authorized("echo x"))
	is.Equal(result.ExitCode, 126)
	is.Equal(result.Reason, wire.Refused)
	is.Equal(result.Error, `no sandbox worker answers in pool "local"`)
	is.Equal(s.finished().Reason, string(wire.Refused))
}

func TestTheRefusalNamesTheReasonOfTheWorker(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	var log bytes.Buffer
	s.exec.Logger = slog.New(slog.NewTextHandler(&log, nil))
	nc := s.connect(natsconf.Worker)
	s.run(nc, func(ctx context.Context) error {
		return wire.Serve(ctx, nc, wire.RunSubject("local"), wire.Server{
			Info: wire.WorkerInfo{Name: "far", Workspace: "/srv/other"}, Serves: func(string) bool { return false },
		})
	})
	r := s.authorized("echo x")
	result, _, _ := s.shell(t.Context(), r)
	is.Equal([]any{result.ExitCode, result.Reason}, []any{126, wire.Refused})
	is.Equal(result.Error, `no sandbox worker of pool "local" takes the command: worker far serves /srv/other, not `+
		s.workspace)
	d := s.finished()
	is.Equal([]string{d.Reason, d.Error}, []string{string(wire.Refused), result.Error})
	expect.Contains(t, log.String(), "exec="+s.execOf(r.Call))
	expect.Contains(t, log.String(), "worker far serves /srv/other, not "+s.workspace)
}

// The caller ends before a worker is found. The result must not look like success.
func TestCommandGivenUpBeforeItStartedIsNoSuccess(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := s.authorized("echo x")
	go s.exec.Exec(ctx, r, io.Discard, io.Discard)
	s.execOf(r.Call)
	cancel()
	d := s.finished()
	is.Equal(d.ExitCode, wire.ExitRefused)
	is.Equal(d.Reason, string(wire.Refused))
}

func TestWorkerThatComesBackInTimeRunsTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r, done := s.authorized("echo x"), make(chan wire.Result, 1)
	go func() {
		result, _, _ := s.shell(t.Context(), r)
		done <- result
	}()
	s.execOf(r.Call) // the search for a worker has begun
	nc := s.connect(natsconf.Worker)
	s.run(nc, func(ctx context.Context) error {
		return wire.Serve(ctx, nc, wire.RunSubject("local"),
			wire.Server{Handle: func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
				return wire.Result{ExitCode: 7}
			}})
	})
	is.Equal((<-done).ExitCode, 7)
}

func TestWorkerRefusesADirectoryOutsideTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.approved("pwd", "/", permission.Decide{})
	r.Workspace = "/" // the shell cannot change the workspace
	result, _, _ := s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 126)
	expect.Contains(t, result.Error, "outside the workspace")
	is.Equal(s.finished().Reason, string(wire.Refused))
}

func TestRequestForAHostExpiresWithALostExecution(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	handlerstest.Happened(t, h.Log, "c1", handlerstest.Fact{By: events.ActorPolicy, Data: events.PermissionRequested{
		Permission: "n1", Type: events.KindNetwork, Patterns: []string{"example.com:443"},
	}})
	x := &Executions{Log: h.Log, Network: &network.Sandbox{Gate: permissiontest.GateOn(h)}}
	is.NoErr(x.RecordLost(t.Context(), "c1", "x3"))
	_, data := handlerstest.History(t, h.Log, "c1")
	expired := handlerstest.Of[events.PermissionExpired](data)
	is.Equal(len(expired), 1)
	is.Equal(expired[0].Permission, "n1")
}
