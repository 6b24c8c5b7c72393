package log_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// publishUntilSeen publishes d again and again until a follower has it. A follower receives only fragments published
// after it began.
func publishUntilSeen(t *testing.T, l *log.Log, d log.Delta, seen <-chan log.Delta) log.Delta {
	t.Helper()
	for range 2000 {
		is.New(t).NoErr(l.PublishDelta(d))
		select {
		case got := <-seen:
			return got
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("no fragment arrived within 20 s")
	return log.Delta{}
}

func TestFollowDeltasFiltersByChat(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t, "sk-canary-0123456789")
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan log.Delta, 10_000), make(chan error, 1)
	go func() {
		done <- l.FollowDeltas(ctx, events.ChatDeltaFilters("chat1"), func(d log.Delta) { seen <- d })
	}()
	first := log.Delta{Subject: events.PartDeltaSubject("chat1"), Type: "opencode.message.part.delta",
		Data: []byte(`{"delta":"a"}`)}
	is.Equal(publishUntilSeen(t, l, first, seen), first)
	for _, d := range []log.Delta{
		{Subject: events.ExecDeltaSubject("chat2", "x9"), Type: log.ExecOutput, Stream: "stdout", Data: []byte("another chat's")},
		{Subject: events.ExecDeltaSubject("chat1", "x1"), Type: log.ExecOutput, Stream: "stdout", Offset: 1 << 40, Data: []byte("\x00key sk-canary-0123456789 \xff")},
	} {
		is.NoErr(l.PublishDelta(d))
	}
	got := <-seen
	for got.Type != log.ExecOutput { // the repetitions of publishUntilSeen
		got = <-seen
	}
	is.Equal(got, log.Delta{
		Subject: "delta.exec.chat1.x1", Type: "exec.output", Stream: "stdout", Offset: 1 << 40, Data: []byte("\x00key [redacted] \xff"),
	})
	cancel()
	is.True(errors.Is(<-done, context.Canceled))
	is.Equal(len(seen), 0)
}

func TestFragmentsAreStoredRedacted(t *testing.T) {
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc, "sk-canary-0123456789")
	subject := events.PartDeltaSubject("chat1")
	is.NoErr(l.PublishDelta(log.Delta{Subject: subject, Type: "opencode.message.part.delta",
		Data: []byte(`{"delta":"sk-canary-0123456789"}`)}))
	js, err := jetstream.New(nc)
	is.NoErr(err)
	s, err := js.Stream(t.Context(), "DELTAS")
	is.NoErr(err)
	var m *jetstream.RawStreamMsg
	for range 2000 { // fragments are stored without an acknowledgement
		if m, err = s.GetLastMsgForSubject(t.Context(), subject); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	is.NoErr(err)
	is.Equal(string(m.Data), `{"delta":"[redacted]"}`)
}

func TestFoldDeltasReadsInOrderAfterASequence(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	for i := range 1200 {
		is.NoErr(l.PublishDelta(log.Delta{
			Subject: events.ExecDeltaSubject("chat1", []string{"x1", "x2"}[i%2]), Type: log.ExecOutput, Stream: "stdout", Offset: int64(i), Data: []byte{byte(i)},
		}))
	}
	next, place := int64(1), uint64(0)
	for range 2000 { // a fragment is stored a moment later
		var err error
		place, err = l.FoldDeltas(t.Context(), events.ExecDeltaSubject("chat1", "x2"), place, func(d log.Delta) error {
			is.True(time.Since(d.Stored) < time.Minute)
			is.Equal(d, log.Delta{Subject: "delta.exec.chat1.x2", Type: "exec.output", Stream: "stdout", Offset: next,
				Data: []byte{byte(next)}, Stored: d.Stored})
			next += 2
			return nil
		})
		is.NoErr(err)
		if next > 1200 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	is.Equal(next, int64(1201))
	is.Equal(place, uint64(1200))
}

func TestReadDeltasReadsInOrderSinceATime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	publish := func(from, to int) {
		for i := from; i < to; i++ {
			is.NoErr(l.PublishDelta(log.Delta{
				Subject: events.PartDeltaSubject("chat1"), Type: "opencode.message.part.delta", Data: []byte{byte(i)},
			}))
		}
	}
	since := time.Now().Add(-time.Minute)
	publish(0, 50)
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan log.Delta, 1000), make(chan error, 1)
	go func() {
		done <- l.ReadDeltas(ctx, since, events.ChatDeltaFilters("chat1")[:1], func(d log.Delta) { seen <- d })
	}()
	for i := range 100 {
		if i == 20 {
			publish(50, 100)
		}
		is.Equal((<-seen).Data, []byte{byte(i)})
	}
	cancel()
	is.True(errors.Is(<-done, context.Canceled))
	is.Equal(len(seen), 0)
}
