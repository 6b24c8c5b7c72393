package opencode

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode/client"
)

// TestWatchersHearAFragmentBeforeTheFactThatFollowsIt: in one burst, the end of a sentence and the tool call after it.
func TestWatchersHearAFragmentBeforeTheFactThatFollowsIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	bridge, _ := s.bridge()
	in := bridge.Ingest
	in.running = map[string]bool{}
	about := func(seq int64, typ, properties string) client.Event {
		return client.Event{ID: client.NewID("evt", time.Now()), Type: typ, Session: "ses_1", Seq: seq, Properties: json.RawMessage(properties)}
	}
	is.NoErr(in.take(t.Context(), []client.Event{about(0, "session.created", `{"sessionID":"ses_1","info":{"id":"ses_1","directory":"/workspace"}}`)}, false))

	heard := make(chan *nats.Msg, 16)
	for _, subject := range []string{"evt.chat.*.opencode.message.part.updated", "delta.chat.>"} {
		_, err := s.nc.ChanSubscribe(subject, heard)
		is.NoErr(err)
	}
	is.NoErr(s.nc.Flush())
	delta := `{"sessionID":"ses_1","messageID":"msg_1","partID":"prt_1","field":"text","delta":"word "}`
	pending := `{"sessionID":"ses_1","part":{"id":"prt_2","messageID":"msg_1","type":"tool","callID":"c","tool":"bash","state":{"status":"pending"}}}`
	is.NoErr(in.take(t.Context(), []client.Event{
		about(-1, "message.part.delta", delta), about(-1, "message.part.delta", delta),
		about(1, "message.part.updated", pending), about(-1, "message.part.delta", delta),
	}, false))
	for _, want := range []string{delta, delta, pending, delta} {
		is.Equal(string((<-heard).Data), want)
	}
}
