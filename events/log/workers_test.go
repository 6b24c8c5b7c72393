package log_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/expect"
)

// startWork starts a worker that sends the sequence of each event, and waits for a value in release before each ends.
func startWork(t *testing.T, l *log.Log, release chan struct{}) (taken chan uint64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	taken, ended := make(chan uint64, 16), make(chan error, 1)
	go func() {
		ended <- l.Work(ctx, "worker", lostFilter, func(ctx context.Context, e events.Event) error {
			taken <- e.Seq
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		}, func(_ events.Event, err error) { t.Error(err) })
	}()
	return taken, func() {
		cancel()
		<-ended
	}
}

func TestAWorkerThatDoesNotAdvanceIsReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	check := func(n int) {
		for range n {
			l.CheckWorkers(t.Context())
		}
	}
	release := make(chan struct{})
	taken, stop := startWork(t, l, release)
	appendLost(t, l, "chat1", 0, 2)
	is.Equal(<-taken, uint64(1))
	check(11)
	is.Equal(l.StalledWorkers(), nil) // it may be slow
	check(1)
	is.Equal(l.StalledWorkers(), []string{"the consumer worker has not advanced for 60 s; 2 events wait after #0"})
	release <- struct{}{}
	is.Equal(<-taken, uint64(2))
	check(1)
	is.Equal(l.StalledWorkers(), nil)
	check(12)
	is.Equal(len(l.StalledWorkers()), 1)
	release <- struct{}{}
	expect.Eventually(t, "it works", func() bool { check(1); return l.StalledWorkers() == nil })
	check(20)
	is.Equal(l.StalledWorkers(), nil) // nothing waits
	appendLost(t, l, "chat1", 2, 1)
	is.Equal(<-taken, uint64(3))
	check(13)
	is.Equal(len(l.StalledWorkers()), 1)
	stop()
	is.Equal(l.StalledWorkers(), nil) // it has ended
}

func TestAWorkerWithoutItsConsumerIsReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	js, err := jetstream.New(nc)
	is.NoErr(err)
	taken, stop := startWork(t, l, make(chan struct{}))
	defer stop()
	appendLost(t, l, "chat1", 0, 1)
	<-taken
	is.NoErr(js.DeleteConsumer(t.Context(), "EVENTS", "worker"))
	l.CheckWorkers(t.Context())
	is.Equal(l.StalledWorkers(), []string{"the consumer worker is missing; restart PocketCoder"})
}

// As on an external server. The files of the embedded one are repaired before it opens them (package recovery).
func TestAWorkerGoesOnWithAnotherConsumerIfItsOwnCannotBeOpened(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := expect.MemoryDir(t)
	s := eventstest.Server(t, dir)
	l := eventstest.Open(t, eventstest.Conn(t, s))
	appendLost(t, l, "chat1", 0, 3)
	work(t, l, lostFilter, func(n int, _ string) (error, bool) { return nil, n == 3 })
	s.Shutdown()
	s.WaitForShutdown()
	state := filepath.Join(dir, "jetstream", "$G", "streams", "EVENTS", "obs", "worker", "o.dat")
	text, err := os.ReadFile(state)
	is.NoErr(err)
	for i := range min(8, len(text)) {
		text[i] ^= 0xff
	}
	is.NoErr(os.WriteFile(state, text, 0o600))
	reopen := func() {
		s = eventstest.Server(t, dir)
		l = eventstest.Open(t, eventstest.Conn(t, s))
	}
	reopen()
	given, failures := work(t, l, lostFilter, func(n int, _ string) (error, bool) { return nil, n == 3 })
	is.Equal(given, []string{"ses_0", "ses_1", "ses_2"}) // from the first event
	is.Equal(len(failures), 1)
	is.Equal(failures[0].Error(), "the NATS server cannot open the consumer worker; worker-2 does its work")

	s.Shutdown()
	s.WaitForShutdown()
	reopen()
	appendLost(t, l, "chat1", 3, 1)
	given, _ = work(t, l, lostFilter, func(_ int, session string) (error, bool) {
		l.CheckWorkers(t.Context())
		is.Equal(l.StalledWorkers(), nil)
		return nil, session == "ses_3"
	})
	is.True(given[0] >= "ses_2") // it goes on after the last event that was certainly acknowledged
}
