package ingest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
)

// One burst holds the end of a sentence and the tool call after it.
func TestFragmentsArePublishedInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := bridgetest.NewSystem(t)
	bridge, _ := s.Outbox()
	in := bridge.Ingest
	event := func(seq int64, typ, properties string) client.Event {
		return client.Event{ID: client.NewID("evt", time.Now()), Type: typ, Session: "ses_1", Seq: seq,
			Properties: json.RawMessage(properties)}
	}
	is.NoErr(in.Take(t.Context(), []client.Event{event(0, "session.created",
		`{"sessionID":"ses_1","info":{"id":"ses_1","directory":"/workspace"}}`)}))

	messages := make(chan *nats.Msg, 16)
	for _, subject := range []string{"evt.chat.*.opencode.message.part.updated", "delta.chat.>"} {
		_, err := s.NC.ChanSubscribe(subject, messages)
		is.NoErr(err)
	}
	is.NoErr(s.NC.Flush())
	delta := `{"sessionID":"ses_1","messageID":"msg_1","partID":"prt_1","field":"text","delta":"word "}`
	pending := `{"sessionID":"ses_1","part":{"id":"prt_2","messageID":"msg_1","type":"tool","callID":"c","tool":"bash","state":{"status":"pending"}}}`
	is.NoErr(in.Take(t.Context(), []client.Event{
		event(-1, "message.part.delta", delta), event(-1, "message.part.delta", delta),
		event(1, "message.part.updated", pending), event(-1, "message.part.delta", delta),
	}))
	for _, want := range []string{delta, delta, pending, delta} {
		is.Equal(string((<-messages).Data), want)
	}
}
