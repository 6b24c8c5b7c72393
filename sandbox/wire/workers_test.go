package wire_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

func TestWorkersAreListed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	nc := connect(t, url)
	none, err := wire.Workers(t.Context(), nc, "test")
	is.NoErr(err)
	is.Equal(len(none), 0)

	h := newHeldHandler()
	one := wire.WorkerInfo{Name: "b", Isolation: "landlock", Reason: "no bwrap\x1b[2J", Workspace: "/b", Capacity: 4,
		Version: "v1"}
	two := wire.WorkerInfo{Name: "a", Isolation: "bwrap", Workspace: "/a", Version: "v2"}
	serveAs(t, url, wire.Server{Info: one, Handle: h.as("b")})
	done := call(t, nc, hello)
	<-h.runs
	serveAs(t, url, wire.Server{Info: two, Handle: h.as("a")})
	_, err = nc.Subscribe(subject, func(m *nats.Msg) { m.Respond([]byte("hello")) })
	is.NoErr(err) // an answer that is not JSON is ignored
	is.NoErr(nc.Flush())
	one.Running, one.Reason = 1, "no bwrap [2J"
	got, err := wire.Workers(t.Context(), nc, "test")
	is.NoErr(err)
	is.Equal(got, []wire.WorkerInfo{two, one})
	close(h.release)
	is.NoErr(<-done)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = wire.Workers(ctx, nc, "test")
	is.True(errors.Is(err, context.Canceled))
}

// A Dial names the execution, and only the worker that runs it offers.
func TestADialReachesTheWorkerThatRunsTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	as := func(name string) wire.Server {
		return wire.Server{Handle: func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
			if r.Op == wire.Dial {
				io.WriteString(stdout, name+" "+r.Exec+" ")
				return echo(ctx, r, stdout, stderr)
			}
			return h.as(name)(ctx, r, stdout, stderr)
		}}
	}
	serveAs(t, url, as("a"))
	serveAs(t, url, as("b"))
	nc := connect(t, url)
	var done []<-chan error
	for _, exec := range []string{"x1", "x2"} {
		done = append(done, call(t, nc, wire.Request{Exec: exec, Command: "x", Cwd: "/"}))
		runs := <-h.runs
		for range 5 {
			input := make(chan wire.Input, 1)
			input <- wire.Input{Data: []byte("hello")}
			close(input)
			var out strings.Builder
			_, err := wire.Call(t.Context(), nc, subject, wire.Request{Op: wire.Dial, Exec: exec, Port: 80, Input: input}, &out,
				io.Discard)
			is.NoErr(err)
			is.Equal(out.String(), runs+" "+exec+" hello")
		}
	}
	close(h.release)
	for _, d := range done {
		is.NoErr(<-d)
	}
	err := <-call(t, nc, wire.Request{Op: wire.Dial, Exec: "x1", Port: 80})
	is.True(errors.Is(err, wire.ErrNoWorker))
	expect.Contains(t, err.Error(), "exec x1 does not run")
}
