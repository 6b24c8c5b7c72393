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
	"pocketcoder/events/log"
	"pocketcoder/events/log/direct"
	"pocketcoder/expect"
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
	l, err := log.Attach(nc, "late")
	is.NoErr(err)
	_, err = l.Fold(t.Context(), events.AllEvents, 0, func(events.Event) error { return nil })
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
	last, err := l.Fold(log.WithoutTimeout(t.Context()), events.AllEvents, 0, func(e events.Event) error {
		got = append(got, e.Seq)
		return nil
	})
	is.NoErr(err)
	is.Equal(last, uint64(3))
	is.Equal(got, []uint64{1, 2, 3}) // each once
	<-answered
}
