package projections_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

// watching watches read models until the test ends, and returns a function that waits for the next look and returns
// the sequence that it sees. The first look fails.
func watching(t *testing.T, m *projections.Model) (next func() uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	seen, failed := make(chan uint64), errors.New("a failure")
	ended := make(chan error, 1)
	go func() {
		ended <- m.Watch(ctx, slog.New(slog.DiscardHandler), "a test", time.Millisecond,
			func(ctx context.Context) (time.Duration, error) {
				select {
				case seen <- m.Seq():
				case <-ctx.Done():
				}
				err := failed
				failed = nil
				return time.Hour, err
			})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Error(err)
		}
	})
	return func() uint64 {
		t.Helper()
		select {
		case seq := <-seen:
			return seq
		case <-time.After(time.Minute):
			t.Fatal("it did not look")
			return 0
		}
	}
}

func TestAWatchLooksAfterAFailureAndAfterAnEvent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), l)
	last, err := l.Append(t.Context(), own(t, user, events.ChatCreated{Title: "Chat", User: "ann", Engine: engine}))
	is.NoErr(err)
	next := watching(t, waited(t, m, last))
	is.Equal(next(), last)
	is.Equal(next(), last) // nothing has changed
	last, err = l.Append(t.Context(), own(t, user, events.MessageSubmitted{Message: "m1"}))
	is.NoErr(err)
	is.Equal(next(), last)
}

func TestAWatchSeesWhatTheLogHas(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	m, err := projectionstest.Open(t.Context(), expect.MemoryDir(t), l)
	is.NoErr(err)
	last, err := l.Append(t.Context(), own(t, user, events.ChatCreated{Title: "Chat", User: "ann", Engine: engine}))
	is.NoErr(err)
	t.Cleanup(func() { m.Close() })
	next := watching(t, m)
	stop := work(t, m) // the read models follow the log only from here
	t.Cleanup(stop)
	is.Equal(next(), last)
}
