package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

func TestACallWithoutAWorkerFailsAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := connect(t, natsServer(t))
	_, err := wire.Call(t.Context(), nc, subject, hello, io.Discard, io.Discard)
	is.True(errors.Is(err, wire.ErrNoWorker))
	nc.Close()
	_, err = wire.Call(t.Context(), nc, subject, hello, io.Discard, io.Discard)
	is.True(errors.Is(err, nats.ErrConnectionClosed))
}

// A worker that hung and continues must not run a command whose caller has ended.
func TestAServerThatOffersTooLateRunsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	hung := connect(t, url)
	taken, err := hung.QueueSubscribeSync(subject, "workers")
	is.NoErr(err)
	is.NoErr(hung.Flush())
	nc := connect(t, url)
	_, err = wire.Call(t.Context(), nc, subject, hello, io.Discard, io.Discard)
	is.True(errors.Is(err, wire.ErrNoWorker))

	late, err := taken.NextMsg(time.Minute)
	is.NoErr(err)
	is.NoErr(taken.Unsubscribe())
	var ran atomic.Bool
	worker := serve(t, url, func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
		ran.Store(true)
		return wire.Result{}
	})
	inbox, err := hung.SubscribeSync(hung.NewInbox())
	is.NoErr(err)
	is.NoErr(hung.PublishRequest(subject, inbox.Subject, late.Data)) // the caller of this request has ended
	offer, err := inbox.NextMsg(time.Minute)
	is.NoErr(err)
	is.Equal(offer.Header.Get("Exec-Frame"), "offer")
	expect.Eventually(t, "it becomes true", func() bool { return worker.nc.NumSubscriptions() == 1 }) // the exec's is gone
	is.True(!ran.Load())
}

func TestAKilledServerLosesTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	server, _ := process(t, url, "server")
	var out bytes.Buffer
	result, err := wire.Call(t.Context(), connect(t, url), subject, hello, writer(func(p []byte) (int, error) {
		if out.Len() == 0 {
			server.Process.Kill()
		}
		return out.Write(p)
	}), io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Lost)
	is.Equal(result.ExitCode, wire.ExitLost)
}

func TestAStoppedServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	server, _ := process(t, url, "server")
	var out bytes.Buffer
	result, err := wire.Call(t.Context(), connect(t, url), subject, wire.Request{Command: "short", Cwd: "/"},
		writer(func(p []byte) (int, error) {
			if out.Len() == 0 {
				stopFor(server.Process, 6*time.Second)
			}
			return out.Write(p)
		}), io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Exited)
	is.Equal(bytes.Count(out.Bytes(), []byte("tick")), 100)
}

// A machine that dies, or a process that is stopped for good, sends no message.
func TestAServerThatFallsSilentLosesTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	server, _ := process(t, url, "server")
	_, last := process(t, url, "caller", "WIRE_SILENCE=2s")
	is.NoErr(server.Process.Signal(syscall.SIGSTOP))
	is.Equal(<-last, "end lost 255 <nil>")
}

func TestAKilledCallerCancelsTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	cancelled := make(chan time.Time, 1)
	serve(t, url, func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
		io.WriteString(stdout, "running\n")
		<-ctx.Done() // without output, only the probes notice it
		cancelled <- time.Now()
		return wire.Result{Reason: wire.Cancelled}
	})
	caller, _ := process(t, url, "caller")
	killed := time.Now()
	is.NoErr(caller.Process.Kill())
	t.Logf("noticed after %s", (<-cancelled).Sub(killed))
}

func TestAStoppedCallerIsWaitedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	var blocked atomic.Int64
	done := make(chan error, 1)
	serve(t, url, func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
		for range 100 { // far more than Window and all pipes hold
			_, err := stdout.Write(bytes.Repeat([]byte("y\n"), wire.Window/20))
			if err != nil {
				done <- err
				return wire.Result{}
			}
			blocked.Add(1)
		}
		done <- ctx.Err()
		return wire.Result{}
	})
	caller, _ := process(t, url, "caller")
	stopFor(caller.Process, 6*time.Second)
	is.NoErr(<-done)
}

func TestBothSidesGiveUpWithoutNATS(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startNATS(t)
	cancelled := make(chan bool, 1)
	serve(t, s.ClientURL(), func(ctx context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		io.WriteString(stdout, "running")
		<-ctx.Done()
		cancelled <- true
		return wire.Result{Reason: wire.Cancelled}
	})
	result, err := wire.Call(t.Context(), connect(t, s.ClientURL()), subject, hello, writer(func(p []byte) (int, error) {
		go s.Shutdown()
		return len(p), nil
	}), io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Lost)
	is.True(<-cancelled)
}

func stopFor(p *os.Process, d time.Duration) {
	p.Signal(syscall.SIGSTOP)
	time.AfterFunc(d, func() { p.Signal(syscall.SIGCONT) })
}

// A NATS server restarts faster than both sides reconnect. Neither side may take the other for dead.
func TestNATSThatRestartsLosesNoCommand(t *testing.T) {
	t.Parallel()
	// Between attempts to reconnect. Each late side misses several probes, and two attempts and more fit into CutOff.
	const soon = 50 * time.Millisecond
	for name, c := range map[string]struct{ caller, worker time.Duration }{
		"the worker is late": {soon, 2 * time.Second}, "the caller is late": {time.Second, soon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := startNATS(t)
			connect := func(wait time.Duration) *nats.Conn {
				nc := must(nats.Connect(s.ClientURL(), nats.ReconnectWait(wait), nats.ReconnectJitter(0, 0),
					nats.MaxReconnects(-1)))
				t.Cleanup(nc.Close)
				return nc
			}
			caller, worker := connect(c.caller), connect(c.worker)
			goOn := make(chan struct{})
			serveOn(t, worker, wire.Server{Handle: func(ctx context.Context, _ wire.Request, _, _ io.Writer) wire.Result {
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				return wire.Result{Reason: wire.Exited}
			}})
			r, port := hello, s.Addr().(*net.TCPAddr).Port
			r.Started = func(wire.Start) {
				go func() {
					s.Shutdown()
					s.WaitForShutdown()
					startNATSAt(t, port)
					expect.Eventually(t, "one side is back", func() bool { return caller.IsConnected() || worker.IsConnected() })
					close(goOn)
				}()
			}
			result, err := wire.Call(t.Context(), caller, subject, r, io.Discard, io.Discard)
			is.NoErr(err)
			is.Equal(result, wire.Result{Reason: wire.Exited})
		})
	}
}

func TestCommandWaitsForNATSThatIsAway(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startNATS(t)
	// of both, as in a node: they come back together
	nc := must(nats.Connect(s.ClientURL(), nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1)))
	t.Cleanup(nc.Close)
	var ran atomic.Int64
	serveOn(t, nc, wire.Server{Handle: func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
		ran.Add(1)
		return wire.Result{Reason: wire.Exited}
	}})
	port := s.Addr().(*net.TCPAddr).Port
	s.Shutdown()
	s.WaitForShutdown()
	expect.Eventually(t, "it is away", func() bool { return !nc.IsConnected() })
	ended := make(chan error, 1)
	go func() {
		_, err := wire.Call(t.Context(), nc, subject, hello, io.Discard, io.Discard)
		ended <- err
	}()
	expect.Eventually(t, "the call waits", func() bool { return nc.NumSubscriptions() == 3 })
	startNATSAt(t, port)
	is.NoErr(<-ended)
	is.Equal(ran.Load(), int64(1))
}

// A request that is lost with the connection is sent again.
func TestRequestThatIsLostWithTheConnectionIsRepeated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	l := newLink(t, url)
	caller := must(nats.Connect(l.url, nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1)))
	t.Cleanup(caller.Close)
	var ran atomic.Int64
	w := connect(t, url)
	lost := make(chan struct{})
	first, err := w.Subscribe(subject, func(*nats.Msg) { close(lost) }) // the first request is not answered
	is.NoErr(err)
	is.NoErr(first.AutoUnsubscribe(1))
	is.NoErr(w.Flush())
	ended := make(chan error, 1)
	go func() {
		_, err := wire.Call(t.Context(), caller, subject, hello, io.Discard, io.Discard)
		ended <- err
	}()
	<-lost
	serve(t, url, func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
		ran.Add(1)
		return wire.Result{Reason: wire.Exited}
	})
	l.cut()
	is.NoErr(<-ended)
	is.Equal(ran.Load(), int64(1))
}
