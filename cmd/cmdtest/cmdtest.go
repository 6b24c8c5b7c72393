// Package cmdtest helps the tests of the packages in cmd: recorded turns of OpenCode as events of a chat, and
// terminals.
//
// It must not know the packages that it helps to test.
package cmdtest

import (
	"bytes"
	"embed"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
)

//go:embed testdata/traces
var traces embed.FS

// Trace returns a recording of the real OpenCode 1.18.33 as the events of chat1, numbered from 1, and its streaming
// fragments.
func Trace(t testing.TB, name string) (all []events.Event, deltas []log.Delta) {
	t.Helper()
	body, err := traces.ReadFile("testdata/traces/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(bytes.NewReader(body)); dec.More(); {
		var r struct {
			ID, Type   string
			Properties json.RawMessage
		}
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Type == "message.part.delta" {
			deltas = append(deltas, log.Delta{Subject: events.PartDeltaSubject("chat1"), Type: "opencode." + r.Type,
				Data: r.Properties})
			continue
		}
		e, err := events.NewOpenCode("chat1", "local", r.ID, -1, events.OpenCode{Type: r.Type, Properties: r.Properties})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Numbered(e, len(all)+1))
	}
	return all, deltas
}

// Numbered returns an event with a sequence, and with a time of one second for each event before it.
func Numbered(e events.Event, seq int) events.Event {
	e.Seq, e.Time = uint64(seq), time.Unix(int64(seq), 0).UTC()
	return e
}

// Own returns an event of ours in chat1.
func Own(t testing.TB, seq int, actor string, d events.Data) events.Event {
	t.Helper()
	e, err := events.New("chat1", actor, d)
	if err != nil {
		t.Fatal(err)
	}
	return Numbered(e, seq)
}

// Running returns the data directory of a system whose API a handler serves until the test ends.
func Running(t testing.TB, api http.Handler) datadir.Dir {
	t.Helper()
	dir, err := os.MkdirTemp("", "data") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := datadir.Dir(dir)
	if err := d.Announce(datadir.Running{PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	Serve(t, d, api)
	return d
}

// Serve serves the API of the system of a data directory until the test ends.
func Serve(t testing.TB, d datadir.Dir, api http.Handler) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(d.APISocket()), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", d.APISocket())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: api}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
}
