package natsconf_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

// commandSystem is the whole way of a command, in the accounts that ship: handler, worker.
type commandSystem struct {
	*testServer
	core         *nats.Conn
	coreDenied   <-chan error
	workerDenied <-chan error
	cancelled    chan string // the ids of executions that the worker cancelled
}

func startCommands(t *testing.T) *commandSystem {
	t.Helper()
	s := &commandSystem{testServer: start(t), cancelled: make(chan string, 1)}
	s.core, s.coreDenied = s.connect(natsconf.Core)
	worker, workerDenied := s.connect(natsconf.Worker)
	s.workerDenied = workerDenied
	serve(t, worker, wire.RunSubject("p1"), func(ctx context.Context, r wire.Request, stdout,
		stderr io.Writer) wire.Result {
		switch r.Command {
		case "64 MiB":
			chunk := make([]byte, 1<<20)
			for range 64 {
				stdout.Write(chunk)
			}
			io.WriteString(stderr, "done")
		case "wait":
			io.WriteString(stdout, "waiting")
			<-ctx.Done()
			s.cancelled <- r.Exec
			return wire.Result{ExitCode: 143, Reason: wire.Cancelled}
		case "quiet":
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second): // many probes long
				return wire.Result{ExitCode: 9}
			}
		case "die":
			worker.Close()
			<-ctx.Done()
		}
		return wire.Result{ExitCode: 7}
	})
	return s
}

func (s *commandSystem) call(ctx context.Context, command string, stdout, stderr io.Writer) (wire.Result, error) {
	r := wire.Request{Exec: "x1", Command: command, Cwd: "/"}
	return wire.Call(ctx, s.core, wire.RunSubject("p1"), r, stdout, stderr)
}

func (s *commandSystem) denied() int { return len(s.coreDenied) + len(s.workerDenied) }

func TestCommandsCrossTheAccounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startCommands(t)
	var out, errs counter
	result, err := s.call(t.Context(), "64 MiB", &out, &errs)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Exited)
	is.Equal(result.ExitCode, 7)
	is.Equal(int64(out), int64(64<<20)) // credit crossed the accounts 64 times and more
	is.Equal(int64(errs), int64(4))

	result, err = s.call(t.Context(), "quiet", io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.ExitCode, 9) // silence does not count as the loss of the worker

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, err = s.call(ctx, "wait", writerFunc(cancel), io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Cancelled)
	is.Equal(<-s.cancelled, "x1")
	is.Equal(s.denied(), 0)
}

func TestACommandEndsWithItsHandlerAcrossTheAccounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startCommands(t)
	go s.call(t.Context(), "wait", writerFunc(s.core.Close), io.Discard) // it sends no message
	is.Equal(<-s.cancelled, "x1")
	is.Equal(s.denied(), 0)
}

func TestACommandIsLostWithItsWorkerAcrossTheAccounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startCommands(t)
	result, err := s.call(t.Context(), "die", io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Lost)
	is.Equal(s.denied(), 0)
}

// One command's output over TCP, through two accounts.
func BenchmarkOutput(b *testing.B) {
	n := start(b)
	core, _ := n.connect(natsconf.Core)
	worker, _ := n.connect(natsconf.Worker)
	const size = 100 << 20
	serve(b, worker, wire.RunSubject("p1"), func(_ context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		chunk := make([]byte, 64<<10)
		for range size / len(chunk) {
			stdout.Write(chunk)
		}
		return wire.Result{}
	})
	b.SetBytes(size)
	for b.Loop() {
		var out counter
		result, err := wire.Call(b.Context(), core, wire.RunSubject("p1"), wire.Request{Command: "x", Cwd: "/"}, &out,
			io.Discard)
		if err != nil || result.Reason != wire.Exited || out != size {
			b.Fatal(result, err, out)
		}
	}
}

func serve(t testing.TB, nc *nats.Conn, subject string, handle wire.Handler) {
	t.Helper()
	serveAs(t, nc, subject, wire.Server{Handle: handle})
}

func serveAs(t testing.TB, nc *nats.Conn, subject string, c wire.Server) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- wire.Serve(ctx, nc, subject, c) }()
	is := is.New(t)
	for nc.NumSubscriptions() == 0 {
		time.Sleep(time.Millisecond)
	}
	is.NoErr(nc.Flush())
	t.Cleanup(func() {
		stop()
		if err := <-ended; !nc.IsClosed() {
			is.NoErr(err)
		}
	})
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}
