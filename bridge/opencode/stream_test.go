package opencode

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"
)

// recorded returns the data of every server-sent event of a recording of /global/event.
func recorded(t *testing.T, path string) (data [][]byte) {
	is := is.New(t)
	is.Helper()
	b, err := os.ReadFile(path)
	is.NoErr(err)
	for line := range bytes.Lines(b) {
		var l struct{ Ev json.RawMessage }
		is.NoErr(json.Unmarshal(line, &l))
		if l.Ev != nil { // the last line tells how the recording ended
			data = append(data, l.Ev)
		}
	}
	is.True(len(data) > 0)
	return data
}

func recordings(t *testing.T) []string {
	is := is.New(t)
	is.Helper()
	paths, err := filepath.Glob("testdata/*.jsonl")
	is.NoErr(err)
	is.True(len(paths) > 0)
	return paths
}

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
	for _, path := range recordings(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			is := is.New(t)
			var plain payload
			for _, data := range recorded(t, path) {
				var p payload
				is.NoErr(json.Unmarshal(data, &p))
				if p.Payload.Type == "sync" {
					is.Equal(p.Payload.ID, plain.Payload.ID) // right after its plain half
					is.Equal(unversioned(p.Payload.SyncEvent.Type), plain.Payload.Type)
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
	for _, path := range recordings(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			is := is.New(t)
			ids, seqs := map[string]bool{}, map[string]int64{}
			for _, data := range recorded(t, path) {
				e, ok, err := parseEvent(data)
				is.NoErr(err)
				if !ok {
					continue
				}
				is.True(!ids[e.ID]) // given twice
				ids[e.ID] = true
				is.Equal(e.Sync, durable(e.Type))
				is.Equal(e.Sync, e.Seq >= 0)
				if !e.Sync {
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
	e, ok, err := parseEvent([]byte(`{"payload":{"id":"evt_1","type":"server.connected","properties":{}}}`))
	is.NoErr(err)
	is.True(ok)
	is.Equal(e, Event{ID: "evt_1", Type: "server.connected", Seq: -1, Properties: json.RawMessage(`{}`)})
	_, _, err = parseEvent([]byte(`{"payload":{}}`))
	is.True(err != nil)
	_, _, err = parseEvent([]byte(`{"payload":`))
	is.True(err != nil)
}
