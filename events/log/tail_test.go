package log_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// follow runs a tail of l until the test ends.
func follow(t testing.TB, l *log.Log) *log.Tail {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tl, done := log.NewTail(l), make(chan error, 1)
	go func() { done <- tl.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the tail ended with %v", err)
		}
	})
	return tl
}

// ignore is for followers that do not care where the stored events end.
func ignore(uint64) error { return nil }

func TestFollowerGetsTheBacklogTheMarkerAndThenWhatComes(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	appendLost(t, l, "chat1", 0, 3)
	appendLost(t, l, "chat2", 3, 2)
	got := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	tl := follow(t, l)
	go func() {
		done <- tl.Follow(ctx, 1, events.ChatFilter("chat1"), func(e events.Event) error {
			got <- fmt.Sprint(e.Seq, " ", e.Subject.ID)
			return nil
		}, func(seq uint64) error {
			got <- fmt.Sprint("caught up, at least ", seq >= 3)
			return nil
		})
	}()
	is.Equal(<-got, "2 chat1")
	is.Equal(<-got, "3 chat1")
	is.Equal(<-got, "caught up, at least true")
	appendLost(t, l, "chat2", 5, 1)
	appendLost(t, l, "chat1", 6, 1)
	is.Equal(<-got, "7 chat1")
	cancel()
	is.Equal(<-done, context.Canceled)
	is.Equal(len(got), 0)
}

func TestFollowEndsWithTheErrorOfItsReader(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	tl := follow(t, l)
	appendLost(t, l, "chat1", 0, 1)
	broken := errors.New("the client went away")
	nothing := func(events.Event) error { return nil }
	is.True(errors.Is(tl.Follow(t.Context(), 0, events.AllEvents, func(events.Event) error { return broken }, ignore),
		broken))
	is.True(errors.Is(tl.Follow(t.Context(), 0, events.AllEvents, nothing, func(uint64) error { return broken }), broken))
	is.NoErr(tl.Follow(t.Context(), 0, events.AllEvents, func(events.Event) error { return events.ErrStop }, ignore))
	live := func(events.Event) error { return broken }
	is.True(errors.Is(tl.Follow(t.Context(), 1, events.AllEvents, live,
		func(uint64) error { appendLost(t, l, "chat1", 1, 1); return nil }), broken))
}

func TestFollowerThatCameBeforeTheTailRanMissesNothing(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	tl := log.NewTail(l)
	got, caughtUp := make(chan uint64, 10), make(chan bool)
	go func() {
		_ = tl.Follow(t.Context(), 0, events.AllEvents, func(e events.Event) error { got <- e.Seq; return nil },
			func(uint64) error {
				close(caughtUp)
				return nil
			})
	}()
	<-caughtUp
	appendLost(t, l, "chat1", 0, 2) // after the follower looked, before the tail begins
	go func() { _ = tl.Run(t.Context()) }()
	is.Equal(<-got, uint64(1))
	is.Equal(<-got, uint64(2))
	appendLost(t, l, "chat1", 2, 1)
	is.Equal(<-got, uint64(3))
}

// reader is a follower that stalls and stops at random, and resumes after its last event.
type reader struct {
	filter string
	stall  int // of so many events, one is not done with until all is written; 0 for none
	cut    int // after so many events it stops, and begins again; 0 for never
	until  string
	got    []uint64
	err    error
}

func (r *reader) run(tl *log.Tail, after uint64, written <-chan struct{}) {
	for ended := false; !ended && r.err == nil; {
		n := 0
		r.err = tl.Follow(context.Background(), after, r.filter, func(e events.Event) error {
			r.got, after, n = append(r.got, e.Seq), e.Seq, n+1
			if r.stall > 0 && n%r.stall == 0 {
				<-written
			}
			if ended = e.ID == r.until; ended || n == r.cut {
				return events.ErrStop
			}
			return nil
		}, ignore)
	}
}

func drawReader(t *rapid.T, chats []string) *reader {
	chat := rapid.SampledFrom(chats).Draw(t, "chat")
	r := &reader{filter: events.ChatFilter(chat), until: "end_" + chat}
	if rapid.Bool().Draw(t, "more than one chat") {
		r.filter, r.until = rapid.SampledFrom([]string{events.AllEvents, "evt.*.*.opencode.>"}).Draw(t, "filter"),
			"end_"+chats[1]
	}
	r.stall = rapid.SampledFrom([]int{0, 1, 3, 300}).Draw(t, "stall")
	r.cut = rapid.SampledFrom([]int{0, 0, 100, 300}).Draw(t, "cut")
	return r
}

// writeIdle appends n events to each chat in turn.
func writeIdle(t *rapid.T, l *log.Log, chats []string, n int, id func(chat string) string) {
	var batch []events.Event
	for range n {
		for _, chat := range chats {
			e, err := events.NewOpenCode(chat, "local", id(chat), -1,
				events.OpenCode{Type: "session.idle", Properties: []byte("{}")})
			if err != nil {
				t.Fatal(err)
			}
			batch = append(batch, e)
		}
	}
	if _, err := l.AppendAll(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFollowerGetsExactlyTheLog(t *testing.T) {
	t.Parallel()
	l := eventstest.Log(t)
	tl := follow(t, l)
	expect.Property(t, func(t *rapid.T) {
		begin, err := l.Last(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		chats, written := []string{events.NewID(), events.NewID()}, make(chan struct{})
		var readers []*reader
		var all sync.WaitGroup
		for range rapid.IntRange(1, 5).Draw(t, "readers") {
			r := drawReader(t, chats)
			readers = append(readers, r)
			all.Go(func() { r.run(tl, begin, written) })
		}
		for _, n := range rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 30, 200}), 0, 3).Draw(t, "writes") {
			writeIdle(t, l, chats, n, func(string) string { return events.NewID() })
		}
		writeIdle(t, l, chats, 1, func(chat string) string { return "end_" + chat })
		close(written)
		all.Wait()
		for _, r := range readers {
			var want []uint64
			if _, err := l.Fold(context.Background(), r.filter, begin,
				func(e events.Event) error { want = append(want, e.Seq); return nil }); err != nil {
				t.Fatal(err)
			}
			if r.err != nil || !slices.Equal(r.got, want) {
				t.Fatalf("%s: got %d events, the log has %d; %v", r.filter, len(r.got), len(want), r.err)
			}
		}
	})
}

func TestAThousandFollowersAreOneConsumer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	tl := follow(t, l)
	const followers = 1000
	caughtUp, got := make(chan bool, followers), make(chan string, followers)
	for i := range followers {
		go func() {
			_ = tl.Follow(t.Context(), 0, events.ChatFilter(fmt.Sprint("chat", i)),
				func(e events.Event) error { got <- e.Subject.ID; return nil },
				func(uint64) error { caughtUp <- true; return nil })
		}()
	}
	for range followers {
		<-caughtUp
	}
	for i := range followers {
		if i%100 == 0 {
			appendLost(t, l, fmt.Sprint("chat", i), 0, 1)
			is.Equal(<-got, fmt.Sprint("chat", i))
		}
	}
	js, err := jetstream.New(nc)
	is.NoErr(err)
	s, err := js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	is.Equal(s.CachedInfo().State.Consumers, 1)
}

func TestWhatAnotherProcessAppendsIsFollowed(t *testing.T) {
	is := is.New(t)
	s := eventstest.Server(t, expect.MemoryDir(t))
	tl := follow(t, eventstest.Open(t, eventstest.Conn(t, s)))
	other := eventstest.Open(t, eventstest.Conn(t, s))
	is.NoErr(tl.Follow(t.Context(), 0, events.AllEvents, func(e events.Event) error {
		is.Equal(e.Subject.ID, "chat1")
		return events.ErrStop
	}, func(uint64) error { appendLost(t, other, "chat1", 0, 1); return nil }))
}

func TestForeignMessageIsFollowedToo(t *testing.T) {
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	tl := follow(t, eventstest.Open(t, nc))
	var got []string
	is.NoErr(tl.Follow(t.Context(), 0, events.AllEvents, func(e events.Event) error {
		is.True(e.Malformed != nil)
		if got = append(got, e.RawSubject); len(got) == 3 {
			return events.ErrStop
		}
		return nil
	}, func(uint64) error {
		for _, subject := range []string{"evt.odd", "evt.chat.x.created", "evt.chat.&.created"} {
			is.NoErr(nc.Publish(subject, []byte("not json")))
		}
		return nc.Flush()
	}))
	is.Equal(got, []string{"evt.odd", "evt.chat.x.created", "evt.chat.&.created"})
}
