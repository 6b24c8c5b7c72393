package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

// heldHandler runs commands until release is closed, and reports the worker of each.
type heldHandler struct {
	runs    chan string
	release chan struct{}
}

func newHeldHandler() *heldHandler { return &heldHandler{make(chan string, 1000), make(chan struct{})} }

func (h *heldHandler) as(name string) wire.Handler {
	return func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
		h.runs <- name
		select {
		case <-h.release:
		case <-ctx.Done():
			return wire.Result{Reason: wire.Cancelled}
		}
		return wire.Result{}
	}
}

// call calls Call in the background.
func call(t testing.TB, nc *nats.Conn, r wire.Request) <-chan error {
	done := make(chan error, 1)
	go func() {
		result, err := wire.Call(t.Context(), nc, subject, r, io.Discard, io.Discard)
		if err == nil && result.Reason != wire.Exited {
			err = fmt.Errorf("%s: %s", result.Reason, result.Error)
		}
		done <- err
	}()
	return done
}

// It runs alone, because it changes loadStep, so that the order of the offers is certain on a slow machine.
func TestTheLeastBusyWorkerIsChosen(t *testing.T) {
	wire.SetLoadStep(t, time.Second)
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	for _, name := range []string{"a", "b", "c"} {
		serveAs(t, url, wire.Server{Handle: h.as(name)})
	}
	nc := connect(t, url)
	var calls []<-chan error
	count := map[string]int{}
	for i := range 6 {
		calls = append(calls, call(t, nc, hello))
		count[<-h.runs]++
		is.Equal(len(count), min(i+1, 3)) // each worker gets one command before any gets a second
	}
	is.Equal(count, map[string]int{"a": 2, "b": 2, "c": 2})
	close(h.release)
	for _, c := range calls {
		is.NoErr(<-c)
	}
}

func TestCallsAtTheSameTimeGoToDifferentWorkers(t *testing.T) {
	wire.SetLoadStep(t, time.Second)
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	for _, name := range []string{"a", "b"} {
		serveAs(t, url, wire.Server{Handle: h.as(name)})
	}
	nc := connect(t, url)
	one, two := call(t, nc, hello), call(t, nc, hello)
	first, second := <-h.runs, <-h.runs
	is.True(first != second)
	close(h.release)
	is.NoErr(<-one)
	is.NoErr(<-two)
}

func TestAFullWorkerIsWaitedForInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	order, release := make(chan string, 10), make(chan struct{})
	serveAs(t, url, wire.Server{Info: wire.WorkerInfo{Capacity: 1},
		Handle: func(_ context.Context, r wire.Request, _, _ io.Writer) wire.Result {
			order <- r.Command
			<-release
			return wire.Result{}
		}})
	nc := connect(t, url)
	first := call(t, nc, wire.Request{Command: "1", Cwd: "/"})
	is.Equal(<-order, "1")
	began := time.Now()
	second := call(t, nc, wire.Request{Command: "2", Cwd: "/", Exec: "second"})
	subscription, err := nc.SubscribeSync(wire.CallerSubject(subject, "second"))
	is.NoErr(err)
	_, err = subscription.NextMsg(time.Minute)
	is.NoErr(err) // it stands in line
	third := call(t, nc, wire.Request{Command: "3", Cwd: "/"})
	for time.Since(began) < wire.StartTimeout+time.Second {
		_, err = subscription.NextMsg(time.Minute)
		is.NoErr(err)
	}
	is.Equal(len(order), 0)
	close(release)
	is.Equal(<-order, "2")
	is.Equal(<-order, "3")
	for _, done := range []<-chan error{first, second, third} {
		is.NoErr(<-done)
	}
}

func TestAFreeWorkerRunsTheCommandOfAFullOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	serveAs(t, url, wire.Server{Info: wire.WorkerInfo{Capacity: 1},
		Handle: func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
			if r.Op == wire.Read {
				io.WriteString(stdout, r.Path)
				return wire.Result{}
			}
			return h.as("full")(ctx, r, stdout, stderr)
		}})
	nc := connect(t, url)
	first := call(t, nc, hello)
	is.Equal(<-h.runs, "full")
	is.NoErr(<-call(t, nc, wire.Request{Op: wire.Read, Path: "file"}))
	second := call(t, nc, wire.Request{Command: "x", Cwd: "/", Exec: "second"})
	subscription, err := nc.SubscribeSync(wire.CallerSubject(subject, "second"))
	is.NoErr(err)
	_, err = subscription.NextMsg(time.Minute)
	is.NoErr(err) // it stands in line
	serveAs(t, url, wire.Server{Handle: h.as("free")})
	third := call(t, nc, hello)
	is.Equal(<-h.runs, "free") // the third command, or the second one, which is sent again
	close(h.release)
	<-h.runs
	for _, done := range []<-chan error{first, second, third} {
		is.NoErr(<-done)
	}
}

func TestANewWorkerRunsQueuedCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	serveAs(t, url, wire.Server{Info: wire.WorkerInfo{Capacity: 1}, Handle: h.as("full")})
	nc := connect(t, url)
	calls := []<-chan error{call(t, nc, hello)}
	is.Equal(<-h.runs, "full")
	subscription, err := nc.SubscribeSync(wire.CallerSubject(subject, "second"))
	is.NoErr(err)
	calls = append(calls, call(t, nc, wire.Request{Command: "x", Cwd: "/", Exec: "second"}))
	_, err = subscription.NextMsg(time.Minute)
	is.NoErr(err) // it stands in line
	serveAs(t, url, wire.Server{Handle: h.as("later")})
	select {
	case name := <-h.runs:
		is.Equal(name, "later")
	case <-time.After(time.Minute):
		t.Fatal("it still stands in line")
	}
	close(h.release)
	for _, done := range calls {
		is.NoErr(<-done)
	}
}

func TestOnlyWorkersOfTheWorkspaceOffer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	for _, workspace := range []string{"/a", "/b"} {
		serveAs(t, url, wire.Server{
			Info:   wire.WorkerInfo{Name: "worker of " + workspace, Workspace: workspace},
			Serves: func(w string) bool { return w == workspace },
			Handle: func(_ context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
				io.WriteString(stdout, workspace)
				return wire.Result{}
			},
		})
	}
	nc := connect(t, url)
	for range 10 {
		var out strings.Builder
		_, err := wire.Call(t.Context(), nc, subject, wire.Request{Command: "x", Cwd: "/", Workspace: "/b"}, &out, io.Discard)
		is.NoErr(err)
		is.Equal(out.String(), "/b")
	}
	_, err := wire.Call(t.Context(), nc, subject, wire.Request{Command: "x", Cwd: "/", Workspace: "/c"}, io.Discard,
		io.Discard)
	is.True(errors.Is(err, wire.ErrNoWorker))
	var why wire.DeclinedError
	is.True(errors.As(err, &why))
	is.True(strings.HasPrefix(string(why), "worker worker of ") && strings.HasSuffix(string(why), ", not /c"))
	expect.Contains(t, err.Error(), "no worker answers: "+string(why))
}

// Offers and grants are dropped, repeated and late.
func TestEveryCommandRunsOnceWhateverIsLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	const calls, workers = 50, 5
	var mu sync.Mutex
	runs := map[string]int{}
	for range workers {
		serveAs(t, url, wire.Server{Info: wire.WorkerInfo{Capacity: 3},
			Handle: func(_ context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
				mu.Lock()
				defer mu.Unlock()
				runs[r.Exec]++
				io.WriteString(stdout, r.Exec)
				return wire.Result{}
			}})
	}
	m := newMangler(t, connect(t, url))
	nc := connect(t, url)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			id := fmt.Sprint("x", i)
			defer m.pass(id)()
			var out strings.Builder
			result, err := wire.Call(t.Context(), nc, m.front, wire.Request{Command: "x", Cwd: "/", Exec: id}, &out, io.Discard)
			if err != nil || result.Reason != wire.Exited || out.String() != id {
				t.Error(id, result, err, out.String())
			}
		})
	}
	all.Wait()
	is.Equal(len(runs), calls)
	for id, n := range runs {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	is.True(m.dropped.Load() > calls/2 && m.repeated.Load() > calls/2)
}

// A caller may repeat the request of an earlier caller that gave up, with the same id.
func TestARepeatedCallRunsOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	var runs atomic.Int64
	serve(t, url, func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
		runs.Add(1)
		return wire.Result{}
	})
	nc := connect(t, url)
	_, err := nc.SubscribeSync(wire.CallerSubject(subject, "x1"))
	is.NoErr(err)
	before, err := nc.SubscribeSync(nc.NewInbox())
	is.NoErr(err)
	is.NoErr(nc.PublishRequest(subject, before.Subject, []byte(`{"exec":"x1","command":"x","cwd":"/"}`)))
	_, err = before.NextMsg(time.Minute)
	is.NoErr(err) // an offer to the earlier caller
	is.NoErr(<-call(t, nc, wire.Request{Exec: "x1", Command: "x", Cwd: "/"}))
	is.Equal(runs.Load(), int64(1))
}
