package natsconf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

// openLog makes the streams that readers read, with three events and a durable consumer of core. It returns how many
// messages they hold.
func openLog(t *testing.T, core *nats.Conn) (js jetstream.JetStream, count func() uint64) {
	t.Helper()
	is := is.New(t)
	js, err := jetstream.New(core)
	is.NoErr(err)
	streams := map[string]string{"EVENTS": "evt.>", "DELTAS": "delta.>", "OBJ_BLOBS": "$O.BLOBS.>"}
	for name, subject := range streams {
		expect.Eventually(t, "stream "+name, func() bool { // a cluster may elect a leader first
			_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject},
				AllowDirect: true})
			return err == nil
		})
	}
	for i := range 3 {
		// until the stream's leader is known on the server that is asked
		_, err = js.Publish(t.Context(), "evt.chat.c1.created", fmt.Append(nil, i), jetstream.WithRetryAttempts(40))
		is.NoErr(err)
	}
	expect.Eventually(t, "the consumer", func() bool {
		_, err := js.CreateOrUpdateConsumer(t.Context(), "EVENTS", jetstream.ConsumerConfig{Durable: "deliver"})
		return err == nil
	})
	return js, func() (n uint64) {
		for name := range streams {
			s, err := js.Stream(t.Context(), name)
			is.NoErr(err)
			n += s.CachedInfo().State.Msgs
		}
		return n
	}
}

func TestReadersReadTheLogAndNothingElse(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, _ := n.connect(natsconf.Core)
	owner, count := openLog(t, core)
	for _, id := range []natsconf.Identity{natsconf.Observer} {
		nc, _ := n.connect(id)
		for _, subject := range []string{"evt.chat.c1.created", "delta.chat.c1.m.p"} { // nats sub 'evt.>'
			live, err := nc.SubscribeSync(subject[:strings.Index(subject, ".")] + ".>")
			is.NoErr(err)
			is.NoErr(nc.Flush())
			_, err = owner.Publish(t.Context(), subject, []byte("live"))
			is.NoErr(err)
			m, err := live.NextMsg(time.Minute)
			is.NoErr(err)
			is.Equal(string(m.Data), "live")
		}
		before := count()

		js, err := jetstream.NewWithAPIPrefix(nc, natsconf.ReaderAPI)
		is.NoErr(err)
		names := js.StreamNames(t.Context())
		found := map[string]bool{}
		for name := range names.Name() {
			found[name] = true
		}
		is.NoErr(names.Err())
		is.Equal(len(found), 3)
		for name := range found {
			stream, err := js.Stream(t.Context(), name)
			is.NoErr(err)
			_, err = stream.Info(t.Context(), jetstream.WithSubjectFilter(">")) // nats stream subjects
			is.NoErr(err)
		}
		stream, err := js.Stream(t.Context(), "EVENTS")
		is.NoErr(err)
		last, err := stream.GetLastMsgForSubject(t.Context(), "evt.chat.c1.created")
		is.NoErr(err)
		is.Equal(string(last.Data), "live")
		var stored struct{ Message struct{ Data []byte } }
		// nats stream get EVENTS 1
		m, err := nc.Request(natsconf.ReaderAPI+".STREAM.MSG.GET.EVENTS", []byte(`{"seq":1}`), time.Minute)
		is.NoErr(err)
		is.NoErr(json.Unmarshal(m.Data, &stored))
		is.Equal(string(stored.Message.Data), "0")
		is.Equal(batch(t, nc, `{"seq":1,"batch":10,"next_by_subj":"evt.chat.c1.>"}`), int(stream.CachedInfo().State.Msgs))
		is.Equal(batch(t, nc, `{"multi_last":["evt.chat.c1.>"]}`), 1)
		deliver, err := stream.Consumer(t.Context(), "deliver") // may be looked at
		is.NoErr(err)
		// the server counts an event a moment after it has stored it
		for deliver.CachedInfo().NumPending != stream.CachedInfo().State.Msgs {
			_, err = deliver.Info(t.Context())
			is.NoErr(err)
		}
		consumers := stream.ConsumerNames(t.Context())
		is.Equal(<-consumers.Name(), "deliver")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = js.Stream(ctx, "KV_SECRETS")
		is.True(err != nil)
		is.True(stream.Purge(ctx) != nil)
		is.True(js.DeleteStream(ctx, "EVENTS") != nil)
		is.Equal(count(), before)
	}
}

// batch returns the number of messages that answer a batched direct get.
func batch(t *testing.T, nc *nats.Conn, request string) (n int) {
	t.Helper()
	is := is.New(t)
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	is.NoErr(err)
	defer answers.Unsubscribe()
	is.NoErr(nc.PublishRequest(natsconf.ReaderAPI+".DIRECT.GET.EVENTS", inbox, []byte(request)))
	for ; ; n++ {
		m, err := answers.NextMsg(time.Minute)
		is.NoErr(err)
		if m.Header.Get("Status") == "204" {
			return n
		}
		is.Equal(m.Header.Get("Status"), "")
	}
}

// With a subscription to an imported subject, the server subscribes APP to the same subject. A push consumer would
// deliver there, and the stream of that subject would store its messages again.
func TestReadersCannotCreateOrChangeConsumers(t *testing.T) {
	t.Parallel()
	inEachUse(t, func(t *testing.T, n *testServer) {
		is := is.New(t)
		core, _ := n.connect(natsconf.Core)
		js, count := openLog(t, core)
		is.NoErr(core.Publish("$O.BLOBS.C.x", nil))
		_, err := js.Publish(t.Context(), "delta.chat.c1.m.p", nil, jetstream.WithRetryAttempts(40))
		is.NoErr(err)
		ordered, err := js.OrderedConsumer(t.Context(), "EVENTS",
			jetstream.OrderedConsumerConfig{FilterSubjects: []string{"evt.>"}})
		is.NoErr(err)
		name := ordered.CachedInfo().Name
		for _, id := range []natsconf.Identity{natsconf.Observer} {
			nc, denied := n.connect(id)
			for _, deliver := range []string{"evt.x.y.z", "delta.x.y.z"} {
				_, err := nc.SubscribeSync(deliver)
				is.NoErr(err)
			}
			ask := func(request string, body any) {
				t.Helper()
				encoded, err := json.Marshal(body)
				is.NoErr(err)
				if got := answer(t, nc, denied, natsconf.ReaderAPI+".CONSUMER."+request, string(encoded)); got != "no responders" {
					t.Errorf("%s: %s is answered: %s", id, request, got)
				}
			}
			for _, stream := range []string{"EVENTS", "DELTAS", "OBJ_BLOBS"} {
				for _, deliver := range []string{"evt.x.y.z", "delta.x.y.z"} {
					own := "mine-" + deliver[:3]
					for request, name := range map[string]string{
						"CREATE." + stream: "", "CREATE." + stream + "." + own: "name", "CREATE." + stream + "." + own + ".>": "name",
						"DURABLE.CREATE." + stream + "." + own: "durable_name",
					} {
						config := map[string]any{"deliver_subject": deliver, "deliver_policy": "all", "ack_policy": "none",
							"filter_subject": ">"}
						if name != "" {
							config[name] = own
						}
						ask(request, map[string]any{"stream_name": stream, "config": config})
					}
				}
			}
			changed := ordered.CachedInfo().Config
			changed.FilterSubject, changed.FilterSubjects = "", []string{"evt.none"}
			ask("CREATE.EVENTS."+name, map[string]any{"stream_name": "EVENTS", "action": "update", "config": changed})
			for _, request := range []string{"MSG.NEXT", "DELETE", "PAUSE", "RESET", "UNPIN"} {
				ask(request+".EVENTS.deliver", nil)
			}
		}
		is.Equal(count(), uint64(5))
		info, err := ordered.Info(t.Context())
		is.NoErr(err)
		is.Equal(info.Config.FilterSubject, "evt.>")
	})
}
