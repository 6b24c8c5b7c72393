package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

func TestADrainingWorkerFinishesItsCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	a := serveAs(t, url, wire.Server{Handle: h.as("a"), Drain: time.Hour})
	nc := connect(t, url)
	running := call(t, nc, hello)
	is.Equal(<-h.runs, "a")
	a.stop()
	expect.Eventually(t, "it becomes true", func() bool { // its request subscription is removed
		_, err := nc.Request(subject, nil, time.Second)
		return errors.Is(err, nats.ErrNoResponders)
	})
	is.True(errors.Is(<-call(t, nc, hello), wire.ErrNoWorker))
	serveAs(t, url, wire.Server{Handle: h.as("b")})
	other := call(t, nc, hello)
	is.Equal(<-h.runs, "b")
	select {
	case err := <-a.ended:
		t.Fatal("it did not wait", err)
	default:
	}
	close(h.release)
	is.NoErr(<-running)
	is.NoErr(<-other)
	is.NoErr(<-a.ended)
}

func TestDrainingEndsWithItsTimeOrASecondStop(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	nc := connect(t, url)
	abort := make(chan struct{})
	for _, c := range []wire.Server{{Drain: 10 * time.Millisecond}, {Drain: time.Hour, Abort: abort}} {
		c.Handle = h.as("a")
		s := serveAs(t, url, c)
		done := call(t, nc, hello)
		<-h.runs
		s.stop()
		if c.Abort != nil {
			close(abort)
		}
		is.True(strings.HasPrefix((<-done).Error(), "cancelled"))
		is.NoErr(<-s.ended)
	}
}

// Queued commands go to another worker, or fail if there is none.
func TestADrainingWorkerWithdrawsQueuedCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	h := newHeldHandler()
	a := serveAs(t, url, wire.Server{Handle: h.as("a"), Drain: time.Hour, Info: wire.WorkerInfo{Capacity: 1}})
	nc := connect(t, url)
	running := call(t, nc, hello)
	is.Equal(<-h.runs, "a")
	inLine := func(id string) <-chan error {
		subscription, err := nc.SubscribeSync(wire.CallerSubject(subject, id))
		is.NoErr(err)
		defer subscription.Unsubscribe()
		done := call(t, nc, wire.Request{Exec: id, Command: "x", Cwd: "/"})
		_, err = subscription.NextMsg(time.Minute)
		is.NoErr(err)
		return done
	}
	b := serveAs(t, url, wire.Server{Handle: h.as("b"), Info: wire.WorkerInfo{Capacity: 1}})
	other := call(t, nc, hello)
	is.Equal(<-h.runs, "b")
	waiting := inLine("x1")
	a.stop()
	second := inLine("x2") // of b
	b.stop()
	is.True(errors.Is(<-waiting, wire.ErrNoWorker))
	is.True(errors.Is(<-second, wire.ErrNoWorker))
	close(h.release)
	for _, done := range []<-chan error{running, other, a.ended, b.ended} {
		err := <-done
		is.True(err == nil || strings.HasPrefix(err.Error(), "cancelled")) // b has no time to drain
	}
}

// withdrawing subscribes a worker that withdraws its granted offer so many times for each call, and then declines.
func withdrawing(t *testing.T, nc *nats.Conn, times int) {
	t.Helper()
	requests := map[string]int{}
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		var r wire.Request
		json.Unmarshal(m.Data, &r)
		if requests[r.Exec]++; requests[r.Exec] > times {
			nc.PublishMsg(answer(m, "declined", "it is tired"))
			return
		}
		nc.Subscribe(wire.ControlSubject(subject, r.Exec), func(c *nats.Msg) {
			if c.Header.Get("Exec-Frame") == "grant" {
				c.Sub.Unsubscribe()
				nc.PublishMsg(answer(m, "withdrawn", ""))
			}
		})
		nc.PublishMsg(answer(m, "offer", ""))
	})
	is.New(t).NoErr(err)
	is.New(t).NoErr(nc.Flush())
}

func TestAWithdrawnGrantGoesToAnotherWorker(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	withdrawing(t, connect(t, url), 1)
	nc := connect(t, url)
	done := make(chan error, 1)
	var started []string
	r := hello
	r.Started = func(s wire.Start) { started = append(started, s.Worker) }
	go func() {
		_, err := wire.Call(t.Context(), nc, subject, r, io.Discard, io.Discard)
		done <- err
	}()
	err := <-done
	is.True(errors.Is(err, wire.ErrNoWorker)) // there is no other worker
	expect.Contains(t, err.Error(), "it is tired")

	serveAs(t, url, wire.Server{Info: wire.WorkerInfo{Name: "b"},
		Handle: func(context.Context, wire.Request, io.Writer, io.Writer) wire.Result {
			return wire.Result{}
		}})
	for range 200 {
		started = nil
		result, err := wire.Call(t.Context(), nc, subject, r, io.Discard, io.Discard)
		is.NoErr(err)
		is.Equal(result, wire.Result{})
		is.Equal(started, []string{"b"})
	}
}

func TestRepeatedWithdrawalsEndTheCall(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := connect(t, natsServer(t))
	withdrawing(t, nc, 1000)
	is.True(errors.Is(<-call(t, nc, hello), wire.ErrNoWorker))
}
