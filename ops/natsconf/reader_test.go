package natsconf_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/ops/natsconf"
)

// openLog makes EVENTS with three events and a durable consumer of core, and returns how many events there are.
func openLog(t *testing.T, core *nats.Conn) (js jetstream.JetStream, count func() uint64) {
	t.Helper()
	is := is.New(t)
	js, err := jetstream.New(core)
	is.NoErr(err)
	for name, subject := range map[string]string{"EVENTS": "evt.>", "DELTAS": "delta.>"} {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: true})
		is.NoErr(err)
	}
	for i := range 3 {
		_, err = js.Publish(t.Context(), "evt.chat.c1.created", fmt.Append(nil, i))
		is.NoErr(err)
	}
	_, err = js.CreateConsumer(t.Context(), "EVENTS", jetstream.ConsumerConfig{Durable: "deliver"})
	is.NoErr(err)
	return js, func() uint64 {
		s, err := js.Stream(t.Context(), "EVENTS")
		is.NoErr(err)
		return s.CachedInfo().State.Msgs
	}
}

func TestObserverReadsTheLogAndNothingElse(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, _ := n.connect(natsconf.Core)
	owner, count := openLog(t, core)
	for _, id := range []natsconf.Identity{natsconf.Observer, natsconf.Operator} {
		nc, _ := n.connect(id)
		live, err := nc.SubscribeSync("evt.chat.>")
		is.NoErr(err)
		is.NoErr(nc.Flush())
		before := count()
		_, err = owner.Publish(t.Context(), "evt.chat.c1.created", []byte("live"))
		is.NoErr(err)
		m, err := live.NextMsg(5 * time.Second)
		is.NoErr(err)
		is.Equal(string(m.Data), "live") // nats sub 'evt.>'

		js, err := jetstream.NewWithAPIPrefix(nc, natsconf.ReaderAPI)
		is.NoErr(err)
		stream, err := js.Stream(t.Context(), "EVENTS")
		is.NoErr(err)
		is.Equal(stream.CachedInfo().State.Msgs, before+1)
		last, err := stream.GetLastMsgForSubject(t.Context(), "evt.chat.c1.created")
		is.NoErr(err)
		is.Equal(string(last.Data), "live")
		deliver, err := stream.Consumer(t.Context(), "deliver")
		is.NoErr(err)                                     // may be looked at
		for deliver.CachedInfo().NumPending != before+1 { // the server counts an event a moment after it has stored it
			_, err = deliver.Info(t.Context())
			is.NoErr(err)
		}

		all, err := js.OrderedConsumer(t.Context(), "EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"evt.chat.c1.>"}})
		is.NoErr(err)
		msgs, err := all.Messages()
		is.NoErr(err)
		for range before + 1 {
			_, err := msgs.Next(jetstream.NextMaxWait(5 * time.Second))
			is.NoErr(err)
		}
		msgs.Stop()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = js.Stream(ctx, "KV_SECRETS")
		is.True(err != nil)
		is.True(stream.Purge(ctx) != nil)
		is.True(js.DeleteStream(ctx, "EVENTS") != nil)
		is.Equal(count(), before+1)
	}
}
