package log_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

func TestReaderThatIsUpToDateIsToldAtOnce(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	appendLost(t, l, "chat1", 0, 3)
	for _, after := range []uint64{3, 4, 1000} {
		is.Equal(len(read(t, l, after)), 0)
	}
	is.Equal(len(read(t, l, 0, "evt.chat.other.>")), 0)
	is.Equal(len(read(t, l, 2, "evt.chat.other.>")), 0)
	is.Equal(len(read(t, l, 2)), 1)
}

func TestBehindCountsDownToZeroOnce(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	var all []events.Event
	for i := range 1700 {
		all = append(all, openCode(t, fmt.Sprint("chat", i%2), fmt.Sprint("evt_", i), -1, 10))
	}
	_, err := l.AppendAll(t.Context(), all)
	is.NoErr(err)
	seen, last := 0, uint64(0)
	err = l.Read(t.Context(), 100, []string{events.ChatFilter("chat0")}, func(b log.Batch) error {
		is.True(len(b.Events) > 0 && len(b.Events) <= log.MaxBatch)
		for _, e := range b.Events {
			is.True(e.Seq > last)
			last = e.Seq
		}
		seen += len(b.Events)
		is.Equal(int(b.Behind), 800-seen)
		if b.Behind == 0 {
			return events.ErrStop
		}
		return nil
	})
	is.NoErr(err)
	is.Equal(seen, 800)
}

func TestTwoFiltersAreReadInOneOrder(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	for i := range 6 {
		appendLost(t, l, fmt.Sprint("chat", i%3), i, 1)
	}
	var got []string
	for _, e := range read(t, l, 0, events.ChatFilter("chat0"), events.ChatFilter("chat2")) {
		got = append(got, fmt.Sprintf("%d %s", e.Seq, e.Subject.ID))
	}
	is.Equal(strings.Join(got, " "), "1 chat0 3 chat2 4 chat0 6 chat2")
}

func TestReadReturnsTheErrorOfItsFunction(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	appendLost(t, l, "chat1", 0, 1)
	broken := errors.New("disk full")
	is.True(errors.Is(l.Read(t.Context(), 0, nil, func(log.Batch) error { return broken }), broken))
	ctx, cancel := context.WithCancel(t.Context())
	is.True(errors.Is(l.Read(ctx, 0, nil, func(log.Batch) error { cancel(); return nil }), context.Canceled))
	_, err := l.Fold(t.Context(), events.AllEvents, 0, func(events.Event) error { return broken })
	is.True(errors.Is(err, broken))
}

func TestLogIsTheSameAfterARestart(t *testing.T) {
	is := is.New(t)
	dir := expect.MemoryDir(t)
	s := eventstest.Server(t, dir)
	appendLost(t, eventstest.Open(t, eventstest.Conn(t, s)), "chat1", 0, 3)
	l := restart(t, s, dir)
	is.Equal(len(read(t, l, 0)), 3)
	last, err := l.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(3))
}

func TestRestartedReaderReceivesEachEventOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	const n = 200
	var received []uint64
	ended := make(chan error)
	go func() {
		ended <- l.Read(t.Context(), 0, nil, func(b log.Batch) error {
			for _, e := range b.Events {
				received = append(received, e.Seq)
			}
			if slices.Contains(received, n) {
				return events.ErrStop
			}
			return nil
		})
	}()
	for i := range n {
		appendLost(t, l, "chat1", i, 1)
		if i%10 == 0 {
			l.Reopened()
		}
	}
	is.NoErr(<-ended)
	is.Equal(len(received), n)
	for i, seq := range received {
		is.Equal(seq, uint64(i+1))
	}
}
