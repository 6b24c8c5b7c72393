package direct_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log/direct"
	"pocketcoder/ops/expect"
)

// A server that looks for the next match among millions of events answers late. A late answer and that of a repeated
// request come both.
func TestAPatientReaderWaitsForALateAnswer(t *testing.T) { // not parallel: it sets the time for all readers
	defer direct.SetAnswerTime(50 * time.Millisecond)()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	requests := make(chan *nats.Msg, 100)
	_, err := nc.Subscribe("late.DIRECT.GET.EVENTS", func(m *nats.Msg) { requests <- m })
	is.NoErr(err)
	answer := func(m *nats.Msg) {
		var r struct{ Seq uint64 }
		is.NoErr(json.Unmarshal(m.Data, &r))
		for seq := r.Seq; seq <= 3; seq++ {
			e := nats.NewMsg(m.Reply)
			e.Header.Set(jetstream.SubjectHeader, events.ChatSubject("chat1", "created"))
			e.Header.Set(jetstream.SequenceHeader, fmt.Sprint(seq))
			is.NoErr(nc.PublishMsg(e))
		}
		end := nats.NewMsg(m.Reply)
		end.Header.Set("Status", "204")
		end.Header.Set("Nats-Num-Pending", "0")
		is.NoErr(nc.PublishMsg(end))
	}
	_, err = fold(t.Context(), nc, "late", func(uint64) {})
	is.True(errors.Is(err, context.DeadlineExceeded)) // a client waits for so long only
	<-requests

	answered := make(chan struct{})
	go func() {
		defer close(answered)
		first, second := <-requests, <-requests
		<-requests // each wait is twice as long as the one before
		answer(first)
		answer(second)
	}()
	var got []uint64
	last, err := fold(direct.Patient(t.Context()), nc, "late", func(seq uint64) { got = append(got, seq) })
	is.NoErr(err)
	is.Equal(last, uint64(3))
	is.Equal(got, []uint64{1, 2, 3}) // each once
	<-answered
}

// While the server collects a batch it stores nothing in the stream.
func TestSlowAnswersMakeBatchesSmaller(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	sizes := answerSlowly(t, nc, 3)
	_, err := fold(t.Context(), nc, "slow", func(uint64) {})
	is.NoErr(err)
	is.Equal([]int{<-sizes, <-sizes, <-sizes}, []int{1, 1, 1})
}

func TestWorkYields(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	answerSlowly(t, nc, 3)
	began := time.Now()
	_, err := fold(direct.Work(t.Context()), nc, "slow", func(uint64) {})
	is.NoErr(err)
	is.True(time.Since(began) >= 3*4*slowTime) // after each answer a pause of three times as long
}

// fold reads all events of a server that answers under a prefix, as the scans of a log do.
func fold(ctx context.Context, nc *nats.Conn, prefix string, each func(seq uint64)) (last uint64, err error) {
	p := direct.Start(events.AllEvents)
	scans := direct.Stream{Name: "EVENTS", FromStart: direct.Reader{Conn: nc, Prefix: prefix, Yields: true}}
	err = scans.Advance(ctx, p, func(_ *nats.Msg, seq uint64) error { each(seq); return nil })
	return p.Last(events.AllEvents), err
}

// slowTime is how long each answer takes to a test.
const slowTime = 60 * time.Millisecond

// answerSlowly answers requests with one event each, n times in all, and returns the sizes of the requested batches.
func answerSlowly(t *testing.T, nc *nats.Conn, n int) (sizes chan int) {
	t.Helper()
	sizes = make(chan int, n)
	_, err := nc.Subscribe("slow.DIRECT.GET.EVENTS", func(m *nats.Msg) {
		var r struct{ Seq, Batch int }
		_ = json.Unmarshal(m.Data, &r)
		sizes <- r.Batch
		time.Sleep(slowTime) // as a server that loads a block
		e, end := nats.NewMsg(m.Reply), nats.NewMsg(m.Reply)
		e.Header.Set(jetstream.SubjectHeader, events.ChatSubject("chat1", "created"))
		e.Header.Set(jetstream.SequenceHeader, fmt.Sprint(r.Seq))
		end.Header.Set("Status", "204")
		end.Header.Set("Nats-Num-Pending", fmt.Sprint(n-r.Seq))
		_, _ = nc.PublishMsg(e), nc.PublishMsg(end)
	})
	is.New(t).NoErr(err)
	return sizes
}
