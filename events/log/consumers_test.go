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
	"pocketcoder/ops/expect"
)

// startWork starts a consumer that sends the sequence of each event, and waits for a value in release before each ends.
func startWork(t *testing.T, l *log.Log, release chan struct{}) (taken chan uint64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	taken, ended := make(chan uint64, 16), make(chan error, 1)
	go func() {
		ended <- l.Consume(ctx, "gate", lostFilter, func(ctx context.Context, e events.Event) error {
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

func TestAConsumerThatDoesNotAdvanceIsReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	check := func(n int) {
		for range n {
			l.CheckConsumers(t.Context())
		}
	}
	release := make(chan struct{})
	taken, stop := startWork(t, l, release)
	appendLost(t, l, "chat1", 0, 2)
	is.Equal(<-taken, uint64(1))
	check(11)
	is.Equal(l.StalledConsumers(), nil) // it may be slow
	check(1)
	is.Equal(l.StalledConsumers(), []string{"the consumer gate has not advanced for 60 s; 2 events wait after #0"})
	release <- struct{}{}
	is.Equal(<-taken, uint64(2))
	check(1)
	is.Equal(l.StalledConsumers(), nil)
	check(12)
	is.Equal(len(l.StalledConsumers()), 1)
	release <- struct{}{}
	expect.Eventually(t, "it works", func() bool { check(1); return l.StalledConsumers() == nil })
	check(20)
	is.Equal(l.StalledConsumers(), nil) // nothing waits
	appendLost(t, l, "chat1", 2, 1)
	is.Equal(<-taken, uint64(3))
	check(13)
	is.Equal(len(l.StalledConsumers()), 1)
	stop()
	is.Equal(l.StalledConsumers(), nil) // it has ended
}

func TestAConsumerWithoutItsConsumerIsReported(t *testing.T) {
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
	is.NoErr(js.DeleteConsumer(t.Context(), "EVENTS", "gate"))
	l.CheckConsumers(t.Context())
	is.Equal(l.StalledConsumers(), []string{"the consumer gate is missing; restart PocketCoder"})
}

// As on an external server. The files of the embedded one are repaired before it opens them (package recovery).
func TestAConsumerGoesOnWithAnotherConsumerIfItsOwnCannotBeOpened(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := expect.MemoryDir(t)
	s := eventstest.Server(t, dir)
	l := eventstest.Open(t, eventstest.Conn(t, s))
	appendLost(t, l, "chat1", 0, 3)
	work(t, l, lostFilter, func(n int, _ string) (error, bool) { return nil, n == 3 })
	s.Shutdown()
	s.WaitForShutdown()
	state := filepath.Join(dir, "jetstream", "$G", "streams", "EVENTS", "obs", "gate", "o.dat")
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
	is.Equal(failures[0].Error(), "the NATS server cannot open the consumer gate; gate-2 does its work")

	s.Shutdown()
	s.WaitForShutdown()
	reopen()
	appendLost(t, l, "chat1", 3, 1)
	given, _ = work(t, l, lostFilter, func(_ int, session string) (error, bool) {
		l.CheckConsumers(t.Context())
		is.Equal(l.StalledConsumers(), nil)
		return nil, session == "ses_3"
	})
	is.True(given[0] >= "ses_2") // it goes on after the last event that was certainly acknowledged
}
