package natsconf_test

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

// answer sends a request and returns the answer, or "refused", "no responders" or "silence".
func answer(t *testing.T, nc *nats.Conn, denied <-chan error, subject, body string) string {
	t.Helper()
	is := is.New(t)
	replies := make(chan *nats.Msg, 10)
	inbox := nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, replies)
	is.NoErr(err)
	defer sub.Unsubscribe()
	is.NoErr(nc.PublishRequest(subject, inbox, []byte(body)))
	for {
		select {
		case err := <-denied:
			if strings.Contains(strings.ToLower(err.Error()), `publish to "`+strings.ToLower(subject)+`"`) {
				return "refused"
			}
		case m := <-replies:
			if m.Header.Get("Status") == "503" {
				return "no responders"
			}
			return string(m.Data)
		case <-time.After(time.Minute):
			return "silence"
		}
	}
}

// next returns what the server denied.
func next(t *testing.T, nc *nats.Conn, denied <-chan error) string {
	t.Helper()
	is.New(t).NoErr(nc.Flush())
	select {
	case err := <-denied:
		return err.Error()
	case <-time.After(time.Minute):
		return "nothing was denied"
	}
}

func TestNobodyButCoreReadsOrWritesSecrets(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, _ := n.connect(natsconf.Core)
	openLog(t, core)
	secrets, err := secret.Open(t.Context(), core, 1)
	is.NoErr(err)
	const canary = "$argon2id$canary"
	is.NoErr(secrets.Put(t.Context(), "password.alice", []byte(canary)))
	consumer := `{"stream_name":"KV_SECRETS","config":{"name":"c","deliver_policy":"all","ack_policy":"none"}}`
	for _, id := range []natsconf.Identity{natsconf.Observer, natsconf.Worker} {
		nc, denied := n.connect(id)
		for _, api := range []string{"$JS.API.", natsconf.ReaderAPI + "."} {
			for request, body := range map[string]string{
				"STREAM.INFO.KV_SECRETS":                                  `{"subjects_filter":">"}`,
				"STREAM.MSG.GET.KV_SECRETS":                               `{"last_by_subj":"$KV.SECRETS.password.alice"}`,
				"STREAM.MSG.DELETE.KV_SECRETS":                            `{"seq":1}`,
				"STREAM.PURGE.KV_SECRETS":                                 ``,
				"STREAM.DELETE.KV_SECRETS":                                ``,
				"STREAM.SNAPSHOT.KV_SECRETS":                              `{"deliver_subject":"evt.x"}`,
				"STREAM.CREATE.COPY":                                      `{"name":"COPY","sources":[{"name":"KV_SECRETS"}]}`,
				"STREAM.UPDATE.EVENTS":                                    `{"name":"EVENTS","subjects":["evt.>"],"sources":[{"name":"KV_SECRETS"}]}`,
				"DIRECT.GET.KV_SECRETS":                                   `{"last_by_subj":"$KV.SECRETS.password.alice"}`,
				"DIRECT.GET.KV_SECRETS.$KV.SECRETS.password.alice":        ``,
				"DIRECT.GET.EVENTS.$KV.SECRETS.password.alice":            ``,
				"CONSUMER.CREATE.KV_SECRETS.c":                            consumer,
				"CONSUMER.CREATE.KV_SECRETS.c.$KV.SECRETS.password.alice": consumer,
				"CONSUMER.CREATE.EVENTS.c":                                consumer, // names the one, asks for the other
				"CONSUMER.DURABLE.CREATE.KV_SECRETS.c":                    consumer,
				"CONSUMER.MSG.NEXT.KV_SECRETS.c":                          `1`,
			} {
				got := answer(t, nc, denied, api+request, body)
				refused := got == "refused" || got == "no responders" || strings.Contains(got, `"error"`) || got == ""
				is.True(refused) // request
				expect.Lacks(t, got, "canary")
			}
		}
		is.Equal(answer(t, nc, denied, "$KV.SECRETS.password.alice", "forged"), "refused")
		for _, subject := range []string{"$KV.>", "$KV.SECRETS.>", "$KV.SECRETS.password.alice"} {
			_, err := nc.SubscribeSync(subject)
			is.NoErr(err)
			expect.Contains(t, strings.ToLower(next(t, nc, denied)), `subscription to "`+strings.ToLower(subject)+`"`)
		}
	}
	value, _, err := secrets.Get(t.Context(), "password.alice")
	is.NoErr(err)
	is.Equal(string(value), canary)
	js, err := jetstream.New(core)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "KV_SECRETS")
	is.NoErr(err)
	is.Equal(stream.CachedInfo().State.Consumers, 0)
	is.Equal(stream.CachedInfo().State.LastSeq, uint64(1))
}
