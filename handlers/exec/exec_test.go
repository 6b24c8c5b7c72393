package exec

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

func TestAuthorizedCommandRunsAndIsRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.authorized("pwd; echo oops >&2; printf 'no newline'; exit 3")
	result, stdout, stderr := s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 3)
	is.Equal(result.Reason, wire.Exited)
	is.Equal(stdout, s.workspace+"\nno newline")
	is.Equal(stderr, "oops\n")
	all, data := handlerstest.History(t, s.Log, "c1")
	requested, finished := handlerstest.Of[events.ExecRequested](data), handlerstest.Of[events.ExecFinished](data)
	is.Equal(len(requested), 1)
	is.Equal(requested[0], events.ExecRequested{
		Exec: requested[0].Exec, Permission: "per_1", Session: "ses_1", Call: "call_per_1", Command: r.Command, Cwd: s.workspace, Pool: "local",
	})
	is.Equal(len(finished), 1)
	is.Equal(finished[0], events.ExecFinished{
		Exec: requested[0].Exec, Status: events.ExecutionFailed, ExitCode: 3, DurationMS: finished[0].DurationMS, Worker: "here", Isolation: "none",
		Stdout: events.Output{Bytes: int64(len(stdout)), Text: stdout}, Stderr: events.Output{Bytes: 5, Text: "oops\n"},
	})
	is.Equal(all[len(all)-2].Actor, "engine:local")
	is.Equal(all[len(all)-1].Actor, events.ActorSandbox)
	is.Equal(s.started.Load(), int64(1))
}

func TestUnauthorizedCommandsAreNotStarted(t *testing.T) {
	t.Parallel()
	s, _ := withWorker(t)
	good := s.authorized("echo good")
	denied := s.request("echo denied")
	handlerstest.Happened(t, s.Log, "c1", handlerstest.Bash("per_2", "echo denied"),
		handlerstest.Bash("per_3", "echo waiting"))
	_, err := s.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: "per_2", Decision: events.Denied})
	is.New(t).NoErr(err)
	change := func(f func(*wire.Request)) wire.Request { r := good; f(&r); return r }
	for _, c := range []struct {
		name string
		r    wire.Request
		want string
	}{
		{"never asked", wire.Request{Session: "ses_1", Call: "call_9", Command: "id", Cwd: s.workspace}, "no permission was decided for call call_9"},
		{"waits for a person", wire.Request{Session: "ses_1", Call: "call_per_3", Command: "echo waiting", Cwd: s.workspace}, "no permission was decided"},
		{"a byte more", change(func(r *wire.Request) { r.Command += " " }), "not the one that was authorized"},
		{"another byte", change(func(r *wire.Request) { r.Command = "echo gooD" }), "not the one that was authorized"},
		{"another call", change(func(r *wire.Request) { r.Call = "call_per_2" }), "denied by user:alice"},
		{"no call", change(func(r *wire.Request) { r.Call = "" }), "no permission was decided"},
		{"denied", denied, "denied by user:alice"},
	} {
		is := is.New(t)
		result, stdout, stderr := s.shell(t.Context(), c.r)
		is.Equal(result.ExitCode, 126)
		is.Equal(result.Reason, wire.Refused)
		expect.Contains(t, result.Error, c.want)
		is.Equal(stdout+stderr, "")
		_, data := handlerstest.History(t, s.Log, "c1")
		refused := handlerstest.Of[events.ExecRefused](data)
		last := refused[len(refused)-1]
		is.Equal(last, events.ExecRefused{Exec: last.Exec, Session: "ses_1", Call: c.r.Call, Command: c.r.Command,
			Cwd: s.workspace, Reason: result.Error})
	}
	is := is.New(t)
	for _, session := range []string{"ses_2", ""} { // without a chat, nothing is recorded
		result, _, _ := s.shell(t.Context(), change(func(r *wire.Request) { r.Session = session }))
		is.Equal(result.ExitCode, 126)
		expect.Contains(t, result.Error, "is not known")
	}
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecRefused](data)), 7)
	is.Equal(len(handlerstest.Of[events.ExecRequested](data)), 0)
	is.Equal(s.started.Load(), int64(0)) // the worker received nothing
	result, _, _ := s.shell(t.Context(), good)
	is.Equal(result.ExitCode, 0) // the decision is still valid
}

func TestDecisionRunsOneCommandOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	r := s.authorized("echo once")
	var ran, refused int
	var mu sync.Mutex
	handlerstest.AtOnce(8, func(int) error {
		result, _, _ := s.shell(t.Context(), r)
		mu.Lock()
		defer mu.Unlock()
		if result.ExitCode == 0 {
			ran++
		} else if result.Reason == wire.Refused && strings.Contains(result.Error, "was executed already") {
			refused++
		}
		return nil
	})
	is.Equal(ran, 1)
	is.Equal(refused, 7)
	is.Equal(s.started.Load(), int64(1))
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecRequested](data)), 1)
	is.Equal(len(handlerstest.Of[events.ExecRefused](data)), 7)

	s.stop() // a new process reads the log
	x := &Executions{Permissions: s.Permissions, Log: s.Log, Conn: s.connect(natsconf.Core), Engine: "local",
		Pool: "local", Logger: handlerstest.Quiet(),
		Session: func(string) (permission.Session, bool) { return permission.Session{Chat: "c1"}, true }}
	s.exec = x
	s.background(x.Run)
	result, _, _ := s.shell(t.Context(), r)
	is.Equal(result.ExitCode, 126)
	is.Equal(s.started.Load(), int64(1))
}

func TestManyCommandsAtOnceDoNotMix(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	const n = 16
	requests := make([]wire.Request, n)
	for i := range requests {
		requests[i] = s.authorized(fmt.Sprintf("for i in 1 2 3 4 5; do echo out%d; echo err%d >&2; done; exit %d", i, i, i))
	}
	handlerstest.AtOnce(n, func(i int) error {
		result, stdout, stderr := s.shell(t.Context(), requests[i])
		if result.ExitCode != i || stdout != strings.Repeat(fmt.Sprintf("out%d\n", i), 5) ||
			stderr != strings.Repeat(fmt.Sprintf("err%d\n", i), 5) {
			t.Errorf("command %d: %+v %q %q", i, result, stdout, stderr)
		}
		return nil
	})
	for i, r := range requests {
		d := s.finished(s.execOf(r.Call))
		is.Equal(d.ExitCode, i)
		is.Equal(d.Stdout.Text, strings.Repeat(fmt.Sprintf("out%d\n", i), 5))
		is.Equal(d.Stderr.Text, strings.Repeat(fmt.Sprintf("err%d\n", i), 5))
	}
}
