package exec

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

// shellSession is a person at a terminal.
type shellSession struct {
	*system
	nc     *nats.Conn
	input  chan wire.Input
	done   chan wire.Result
	screen expect.Buffer
}

// openShell opens a shell of the operator in chat c1.
func (s *system) openShell(call string) *shellSession {
	s.t.Helper()
	p := &shellSession{system: s, nc: s.connect(natsconf.Core), input: make(chan wire.Input, 8),
		done: make(chan wire.Result, 1)}
	r := wire.Request{Session: "c1", Call: call, Cwd: "/", Terminal: &wire.Terminal{Rows: 24, Cols: 80, Kind: "xterm"},
		Input: p.input}
	go func() {
		result, err := wire.Call(s.t.Context(), p.nc, wire.PersonSubject, r, &p.screen, io.Discard)
		if err != nil && !p.nc.IsClosed() {
			s.t.Error(err)
		}
		p.done <- result
	}()
	return p
}

func (p *shellSession) awaitText(text string) {
	p.t.Helper()
	expect.Eventually(p.t, "the screen shows "+text, func() bool { return strings.Contains(p.screen.String(), text) })
}

func (p *shellSession) typeText(text string) { p.input <- wire.Input{Data: []byte(text)} }

// accountMayAct is a MayAct: ann acts in the chats without an owner.
func accountMayAct(_ context.Context, account string, chat handlers.ChatState) (bool, error) {
	return account == "ann" && chat.Owner == "", nil
}

// withShells returns a system with a worker that serves shells.
func withShells(t *testing.T) *system {
	t.Helper()
	s, _ := withWorker(t)
	conn := s.connect(natsconf.Core)
	s.run(conn, func(ctx context.Context) error {
		return ServeShells(ctx, conn, events.UserActor("operator"), accountMayAct,
			func(context.Context, string) (*Executions, func(), error) { return s.exec, func() {}, nil })
	})
	return s
}

func TestTheDefaultSignalEndsAShell(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := withShells(t)
	p := s.openShell("")
	p.typeText("echo rea''dy\n")
	p.awaitText("ready")
	_, data := handlerstest.History(t, s.Log, "c1")
	_, err := s.exec.Signal(t.Context(), Signal{Command: handlers.Command{Actor: handlerstest.Alice},
		Execution: handlerstest.Of[events.ExecRequested](data)[0].Exec})
	is.NoErr(err)
	<-p.done
	_, data = handlerstest.History(t, s.Log, "c1")
	is.Equal(handlerstest.Of[events.ExecSignalled](data)[0].Signal, "SIGHUP") // it would not hear TERM
}

func TestAPersonsShellIsRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := withShells(t)
	handlerstest.Happened(t, s.Log, "c1", handlerstest.Fact{Data: events.SessionBound{Session: "ses_1",
		Directory: s.workspace}})
	p := s.openShell("")
	p.typeText("stty size; pwd; echo key: " + handlerstest.Canary[:8] + "''" + handlerstest.Canary[8:] + "\n")
	p.awaitText("24 80")
	p.awaitText(s.workspace)
	p.awaitText("key: " + handlerstest.Canary) // the person sees the secret
	p.input <- wire.Input{Size: &wire.Terminal{Rows: 50, Cols: 132}}
	p.typeText("stty size; exit 4\n")
	result := <-p.done
	is.Equal(result.ExitCode, 4)
	d := s.finished()
	is.Equal([]any{d.ExitCode, d.Reason, d.Worker, d.Isolation}, []any{4, "", "here", "none"})
	for _, text := range []string{"24 80", "50 132", "key: [redacted]"} {
		expect.Contains(t, d.Stdout.Text, text)
	}
	expect.Lacks(t, d.Stdout.Text, handlerstest.Canary)
	all, data := handlerstest.History(t, s.Log, "c1")
	requested := handlerstest.Of[events.ExecRequested](data)
	is.Equal(requested, []events.ExecRequested{{Exec: d.Exec, Cwd: s.workspace, Pool: "local", Terminal: true}})
	is.Equal(handlerstest.Of[events.ExecStarted](data),
		[]events.ExecStarted{{Exec: d.Exec, Worker: "here", Isolation: "none"}})
	for i := range data {
		if _, ok := data[i].(events.ExecRequested); ok {
			is.Equal(all[i].Actor, "user:operator")
		}
	}
}

func TestTheShellOfAnAccountIsRecordedInItsName(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := withShells(t)
	nc := s.connect(natsconf.Core)
	input := make(chan wire.Input, 1)
	input <- wire.Input{Data: []byte("exit\n")}
	r := wire.Request{Session: "c1", Account: "ann", Cwd: "/", Terminal: &wire.Terminal{Rows: 24, Cols: 80}, Input: input}
	result, err := wire.Call(t.Context(), nc, wire.PersonSubject, r, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Exited)
	input <- wire.Input{Data: []byte("exit\n")}
	r.Account = "bob"
	result, err = wire.Call(t.Context(), nc, wire.PersonSubject, r, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Refused)
	expect.Contains(t, result.Error, `Account "bob" may not open a shell`)
	all, data := handlerstest.History(t, s.Log, "c1")
	var actors []string
	for i := range data {
		if _, ok := data[i].(events.ExecRequested); ok {
			actors = append(actors, all[i].Actor)
		}
	}
	is.Equal(actors, []string{"user:ann"})
}

func TestOutputOfAPrivateShellIsNotRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := withShells(t)
	p := s.openShell(PrivateShell)
	p.typeText("echo not'' this > file; cat file\n")
	p.awaitText("not this")
	p.typeText("exit\n")
	<-p.done
	d := s.finished()
	is.Equal([]events.Output{d.Stdout, d.Stderr}, []events.Output{{}, {}})
	_, data := handlerstest.History(t, s.Log, "c1")
	requested := handlerstest.Of[events.ExecRequested](data)
	is.Equal(requested, []events.ExecRequested{{Exec: d.Exec, Cwd: s.workspace, Pool: "local", Terminal: true,
		Private: true}})
	n := 0
	_, err := s.Log.FoldDeltas(t.Context(), events.ExecDeltaSubject("c1", d.Exec), 0, func(log.Delta) error {
		n++
		return nil
	})
	is.NoErr(err)
	is.Equal(n, 0)
	// what this one changed is found out after what that one would have
	s.shell(t.Context(), s.authorized("echo x > other"))
	_, changed := handlerstest.Await(t, s.Log, func(events.ExecChanged) bool { return true })
	is.True(changed.Exec != d.Exec)
}

func TestPersonsShellEndsWithTheirTerminalAndTheirChat(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*shellSession) error{
		"the terminal is gone": func(p *shellSession) error { p.nc.Close(); return nil },
		"the chat is deleted": func(p *shellSession) error {
			_, err := p.Chats.Delete(p.t.Context(), chat.Delete{Chat: "c1"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := withShells(t)
			p := s.openShell("")
			p.typeText("echo re''ady\n")
			p.awaitText("ready")
			is.NoErr(end(p))
			is.Equal(s.finished().Reason, string(wire.Cancelled))
		})
	}
}

func TestInvalidShellRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := withShells(t)
	_, _, err := s.Chats.Create(t.Context(), chat.Create{Chat: "c2"})
	is.New(t).NoErr(err)
	_, err = s.Chats.Delete(t.Context(), chat.Delete{Chat: "c2"})
	is.New(t).NoErr(err)
	nc := s.connect(natsconf.Core)
	terminal := &wire.Terminal{Rows: 1, Cols: 1}
	for name, c := range map[string]struct {
		r    wire.Request
		want string
	}{
		"no terminal":     {wire.Request{Session: "c1", Cwd: "/", Command: "id"}, "want a terminal"},
		"half private":    {wire.Request{Session: "c1", Cwd: "/", Call: "Private", Terminal: terminal}, "want a terminal"},
		"no chat":         {wire.Request{Cwd: "/", Terminal: terminal}, "chat: parse id"},
		"an unknown chat": {wire.Request{Session: "nothing", Cwd: "/", Terminal: terminal}, "there is no chat nothing"},
		"a deleted chat":  {wire.Request{Session: "c2", Cwd: "/", Terminal: terminal}, "there is no chat c2"},
	} {
		is := is.New(t)
		result, err := wire.Call(t.Context(), nc, wire.PersonSubject, c.r, io.Discard, io.Discard)
		is.NoErr(err)
		is.Equal(result.Reason, wire.Refused)
		if !strings.Contains(result.Error, c.want) {
			t.Errorf("%s: %q", name, result.Error)
		}
	}
	_, data := handlerstest.History(t, s.Log, "c1")
	is.New(t).Equal(len(handlerstest.Of[events.ExecRequested](data)), 0)
}

// A browser leaves while the log stores the request: the server has it, and its answer is not read any more.
func TestAShellThatIsLeftWhileItIsRecordedHasAnEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := withShells(t)
	conn := s.connect(natsconf.Core)
	sent, err := conn.SubscribeSync(events.ChatSubject("c1", events.ExecRequested{}.Kind()))
	is.NoErr(err)
	is.NoErr(conn.Flush())
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan wire.Result, 1)
		go func() {
			done <- s.exec.shell(ctx, events.UserActor("operator"), accountMayAct,
				wire.Request{Session: "c1", Terminal: &wire.Terminal{Rows: 1, Cols: 1}}, io.Discard, io.Discard)
		}()
		_, err := sent.NextMsgWithContext(t.Context())
		is.NoErr(err)
		leave()
		<-done
	}
	_, data := handlerstest.History(t, s.Log, "c1")
	var requested, finished []string
	for _, d := range handlerstest.Of[events.ExecRequested](data) {
		requested = append(requested, d.Exec)
	}
	for _, d := range handlerstest.Of[events.ExecFinished](data) {
		finished = append(finished, d.Exec)
	}
	is.Equal(len(requested), 20)
	is.Equal(finished, requested)
}
