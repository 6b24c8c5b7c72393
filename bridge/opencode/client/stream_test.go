package client

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/opencodetest"
)

func TestEveryDurableEventIsFollowedByItsTwin(t *testing.T) {
	type payload struct {
		Payload struct {
			ID, Type   string
			Properties json.RawMessage
			SyncEvent  struct {
				Type string
				Data json.RawMessage
			}
		}
	}
	for _, name := range opencodetest.RecordingNames(t) {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			var plain payload
			for _, data := range opencodetest.RecordedEvents(t, name) {
				var p payload
				is.NoErr(json.Unmarshal(data, &p))
				if p.Payload.Type == "sync" {
					is.Equal(p.Payload.ID, plain.Payload.ID) // right after its plain half
					typ, form := splitVersion(p.Payload.SyncEvent.Type)
					is.Equal(typ, plain.Payload.Type)
					is.True(form > 0)
					is.Equal(string(p.Payload.SyncEvent.Data), string(plain.Payload.Properties))
					is.True(durable(plain.Payload.Type))
					plain = payload{}
					continue
				}
				is.Equal(plain.Payload.Type, "") // a durable event without its twin
				if durable(p.Payload.Type) {
					plain = p
				}
			}
		})
	}
}

func TestEveryEventIsGivenOnceWithItsSequence(t *testing.T) {
	for _, name := range opencodetest.RecordingNames(t) {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			ids, seqs := map[string]bool{}, map[string]int64{}
			for _, data := range opencodetest.RecordedEvents(t, name) {
				e, ok, err := ParseEvent(data)
				is.NoErr(err)
				if !ok {
					continue
				}
				is.True(!ids[e.ID]) // given twice
				ids[e.ID] = true
				is.Equal(durable(e.Type), e.Seq >= 0)
				if !durable(e.Type) {
					continue
				}
				if last, seen := seqs[e.Session]; seen {
					is.Equal(e.Seq, last+1)
				}
				seqs[e.Session] = e.Seq
				is.Equal(e.Session, sessionOf(e.Properties))
			}
		})
	}
}

func TestEventsWithoutASessionNameNone(t *testing.T) {
	is := is.New(t)
	e, ok, err := ParseEvent([]byte(`{"payload":{"id":"evt_1","type":"server.connected","properties":{}}}`))
	is.NoErr(err)
	is.True(ok)
	is.Equal(e, Event{ID: "evt_1", Type: "server.connected", Seq: -1, Properties: json.RawMessage(`{}`)})
	_, _, err = ParseEvent([]byte(`{"payload":{}}`))
	is.True(err != nil)
	_, _, err = ParseEvent([]byte(`{"payload":`))
	is.True(err != nil)
}
