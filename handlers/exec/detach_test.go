package exec

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/wire"
)

// untilStop is a command that prints up and its pid, and runs until the file stop exists.
const untilStop = "echo up $$; until test -e stop; do sleep 0.02; done; echo down >&2; exit 3"

// detached starts a detached command, and returns its execution and the pid that it prints.
func (s *system) detached(command string) (exec string, pid int) {
	s.t.Helper()
	is := is.New(s.t)
	r := s.authorized("detach " + command)
	result, stdout, stderr := s.shell(s.t.Context(), r)
	is.Equal(result.ExitCode, 0)
	is.Equal(result.Reason, wire.Exited)
	is.Equal(stderr, "")
	exec = s.execOf(r.Call)
	expect.Contains(s.t, stdout, "[PocketCoder] It runs in the background as execution "+exec+" (here, isolation none).")
	expect.Contains(s.t, stdout, "pocketcoder sandbox logs "+exec+" -f")
	expect.Eventually(s.t, "it becomes true", func() bool { return strings.HasSuffix(s.liveOutput(exec), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(s.liveOutput(exec), "up ")))
	is.NoErr(err)
	return exec, pid
}

// A worker tells one chat's commands from those of others by the request.
func TestRequestsOfAChatShareItsLoopback(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	nc, requests := s.connect(natsconf.Worker), make(chan wire.Request, 1)
	s.run(nc, func(ctx context.Context) error {
		return wire.Serve(ctx, nc, wire.RunSubject("local"), wire.Server{
			Info: wire.WorkerInfo{Name: "here", Isolation: "bwrap", Apart: true},
			Handle: func(ctx context.Context, r wire.Request, _, _ io.Writer) wire.Result {
				requests <- r
				<-ctx.Done()
				return wire.Result{Reason: wire.Cancelled}
			}})
	})
	_, stdout, _ := s.shell(t.Context(), s.authorized("detach npm run dev"))
	is.Equal((<-requests).Loopback, "c1")
	// the model learns if the worker's machine cannot share it
	expect.Contains(t, stdout, "your other commands cannot reach what it serves.\n")
}

func TestTheModelLearnsWhichProcessesACommandLeft(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.authorized("sleep 600 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done; echo hi")
	_, stdout, _ := s.shell(t.Context(), r)
	is.Equal(stdout, "hi\n\n[PocketCoder] The command left 1 process, which still runs: sleep. "+
		"Start a server without `&`, in a command of its own that begins with `detach `.\n")
	d := s.finished(s.execOf(r.Call))
	is.Equal(d.Left, &events.LeftProcesses{Processes: 1, Programs: []string{"sleep"}, Running: true})
	is.Equal(d.Stdout.Text, "hi\n") // the note is not output of the command
	_, stdout, _ = s.shell(t.Context(), s.authorized("echo hi"))
	is.Equal(stdout, "hi\n")
}

func TestADetachedCommandOutlivesItsShell(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	exec, pid := s.detached(untilStop)
	all, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(handlerstest.Of[events.ExecRequested](data), []events.ExecRequested{{
		Exec: exec, Permission: "per_1", Session: "ses_1", Call: "call_per_1", Command: untilStop, Cwd: s.workspace, Pool: "local", Detached: true,
	}})
	is.Equal(data[len(data)-1], events.ExecStarted{Exec: exec, Worker: "here", Isolation: "none"})
	is.Equal(all[len(all)-1].Actor, events.ActorSandbox)

	_, err := s.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: "c1"}) // the turn is over, not the command
	is.NoErr(err)
	other := s.authorized("kill -0 " + strconv.Itoa(pid))
	result, _, _ := s.shell(t.Context(), other)
	is.Equal(result.ExitCode, 0)
	_, err = s.touch("stop")
	is.NoErr(err)
	d := s.finished(exec)
	is.Equal([]any{d.ExitCode, d.Reason, d.Worker, d.Isolation}, []any{3, "", "here", "none"})
	is.Equal([]string{d.Stdout.Text, d.Stderr.Text}, []string{"up " + strconv.Itoa(pid) + "\n", "down\n"})
	repeated := s.request("detach " + untilStop)
	repeated.Call = "call_per_1"
	result, _, _ = s.shell(t.Context(), repeated)
	expect.Contains(t, result.Error, "was executed already") // a decision is valid for one start
}

func TestAnEarlyFailureOfADetachedCommandIsReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	s.exec.detachDelay = time.Minute
	result, stdout, stderr := s.shell(t.Context(), s.authorized("detach echo oops >&2; exit 9"))
	is.Equal([]any{result.ExitCode, result.Reason, stdout, stderr}, []any{9, wire.Exited, "", "oops\n"})

	result, _, _ = s.shell(t.Context(), s.approved("detach pwd", "/", permission.Decide{}))
	is.Equal(result.Reason, wire.Refused)
	expect.Contains(t, result.Error, "outside the workspace")
	s.stop()
	none := newSystem(t)
	result, _, _ = none.shell(t.Context(), none.authorized("detach sleep 1000"))
	is.Equal(result.Error, `no sandbox worker answers in pool "local"`)
	_, data := handlerstest.History(t, none.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecStarted](data)), 0)
	is.Equal(none.finished().Reason, string(wire.Refused))
}

func TestOnlyWhatWasAuthorizedDetachedIsDetached(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	s.exec.detachDelay = time.Minute
	plain := s.authorized("echo a")
	plain.Command = "detach echo a"
	result, _, _ := s.shell(t.Context(), plain)
	expect.Contains(t, result.Error, "not the one that was authorized")
	detached := s.authorized("detach echo a")
	detached.Command = "echo a"
	result, _, _ = s.shell(t.Context(), detached)
	expect.Contains(t, result.Error, "not the one that was authorized")
	is.Equal(s.started.Load(), int64(0))

	edited := s.approved("sleep 1000", s.workspace, permission.Decide{Edited: "detach echo up; exit 2"}) // by a person
	result, stdout, _ := s.shell(t.Context(), edited)
	is.Equal(result.ExitCode, 2)
	is.True(strings.HasPrefix(stdout, "[PocketCoder] A person changed this command"))
	_, data := handlerstest.History(t, s.Log, "c1")
	d := handlerstest.Of[events.ExecRequested](data)[0]
	is.Equal([]any{d.Command, d.Original, d.Detached}, []any{"echo up; exit 2", "sleep 1000", true})
}

func TestDetachedCommandHasNoTimeLimit(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t, func(c *sandbox.Config) { c.Timeout = 400 * time.Millisecond })
	exec, pid := s.detached(untilStop)
	result, _, _ := s.shell(t.Context(), s.authorized("sleep 1000"))
	is.Equal(result.Reason, wire.TimedOut)
	is.NoErr(syscall.Kill(pid, 0)) // the detached command still runs
	_, err := s.touch("stop")
	is.NoErr(err)
	is.Equal(s.finished(exec).ExitCode, 3)
}

func TestADetachedCommandEndsWithItsChatAndTheProcess(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*system) error{
		"the chat is deleted": func(s *system) error {
			_, err := s.Chats.Delete(s.t.Context(), chat.Delete{Chat: "c1"})
			return err
		},
		"we stop": func(s *system) error { s.stop(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, _ := withWorker(t)
			exec, pid := s.detached(untilStop)
			is.NoErr(end(s))
			is.Equal(s.finished(exec).Reason, string(wire.Cancelled))
			expect.Eventually(t, "it becomes true", func() bool { return syscall.Kill(-pid, 0) == syscall.ESRCH })
		})
	}
}

func TestTheBackgroundCommandsOfAnIdleChatEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	var turn atomic.Bool
	turn.Store(true)
	looked := make(chan struct{}, 1000)
	s.exec.IdleAfter = 200 * time.Millisecond
	s.exec.HasTurn = func(context.Context, string) (bool, error) {
		looked <- struct{}{}
		return turn.Load(), nil
	}
	go s.exec.endIdle(t.Context())
	exec, port := s.startServer("hello")
	<-looked // idle but for its turn
	<-looked
	conn, err := s.exec.Dial(t.Context(), "c1", port)
	is.NoErr(err)
	turn.Store(false)
	runs := s.exec.running.onlyDetached()["c1"]
	is.Equal(len(runs), 1)
	for range 20 { // idle but for its connection
		idle, err := s.exec.isIdle(t.Context(), "c1", runs)
		is.NoErr(err)
		is.True(!idle)
	}
	conn.Close()
	d := s.finished(exec)
	is.Equal([]string{d.Reason, d.Error}, []string{"cancelled", "The chat was idle for 200ms."})
	_, err = s.exec.Dial(t.Context(), "c1", port)
	is.True(errors.Is(err, ErrNotServed))
}

func TestDetachedCommandOfAKilledWorkerIsLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, worker := withWorkerProcess(t)
	r := s.authorized("detach " + untilStop)
	result, _, _ := s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 0)
	exec := s.execOf(r.Call)
	expect.Eventually(t, "it becomes true", func() bool { return s.liveOutput(exec) != "" })
	is.NoErr(worker.Process.Kill())
	d := s.finished(exec)
	is.Equal(d.Reason, string(wire.Lost))
	is.True(d.DurationMS > 0)
	is.True(strings.HasPrefix(d.Stdout.Text, "up ")) // the output so far is recorded
}

// A shell that ends before a worker has started its command cancels the command.
func TestDetachedCommandGivenUpBeforeItStartedIsNotStarted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := s.authorized("detach sleep 1000")
	go s.exec.Exec(ctx, r, io.Discard, io.Discard)
	s.execOf(r.Call)
	cancel()
	is.Equal(s.finished().Reason, string(wire.Refused))
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecStarted](data)), 0)
}

func TestAShellThatDoesNotReadBlocksNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	unread, blocked := make(chan struct{}), make(chan struct{}, 1)
	defer close(unread)
	l := shellOutput{left: make(chan struct{})}
	w := l.writerTo(writer(func(p []byte) (int, error) {
		blocked <- struct{}{}
		<-unread
		return len(p), nil
	}))
	wrote, left := make(chan struct{}), make(chan struct{})
	go func() { defer close(wrote); w.Write([]byte("a")) }()
	<-blocked
	go func() { defer close(left); l.leave() }()
	for _, done := range []chan struct{}{left, wrote} {
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("it waits for who does not read")
		}
	}
	n, err := w.Write([]byte("after"))
	is.NoErr(err)
	is.Equal(n, len("after"))
	is.Equal(len(blocked), 0) // the writer is not called after leave
}
