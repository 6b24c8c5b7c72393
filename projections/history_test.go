package projections_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/opencode"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

const (
	chatID   = "chat1"
	engine   = "oc1"
	user     = "user:ann"
	ours     = "message1" // our id of the first message a person wrote in a recording
	directed = "/workspace"
)

// recordedEvent is a line of a recording: an OpenCode event with its durable sequence, -1 for none.
type recordedEvent struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Seq        int64           `json:"seq"`
	Properties json.RawMessage `json:"properties"`
}

// recording reads what a real OpenCode 1.18 reported in a scenario.
func recording(t testing.TB, name string) []events.Event {
	t.Helper()
	is := is.New(t)
	f, err := os.Open(filepath.Join("testdata", name+".jsonl"))
	is.NoErr(err)
	defer f.Close()
	var all []events.Event
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return all
		}
		var r recordedEvent
		is.NoErr(json.Unmarshal(line, &r))
		all = append(all, openCodeEvent(t, r.ID, r.Seq, r.Type, string(r.Properties)))
	}
}

// openCodeEvent returns an OpenCode event of the chat, or of the engine when it names no session.
func openCodeEvent(t testing.TB, id string, seq int64, typ, properties string) events.Event {
	t.Helper()
	chat := chatID
	if !strings.Contains(properties, `"sessionID":`) {
		chat = ""
	}
	e, err := events.NewOpenCode(chat, engine, id, seq, events.OpenCode{Type: typ,
		Properties: json.RawMessage(properties)})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// own makes a fact of our own about the chat.
func own(t testing.TB, actor string, d events.Data) events.Event {
	t.Helper()
	e, err := events.New(chatID, actor, d)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// payload returns the payload of an event of OpenCode, and nil of another event.
func payload(e events.Event) any {
	d, _ := events.Decode(e)
	o, ok := d.(events.OpenCode)
	if !ok {
		return nil
	}
	body, _ := opencode.Decode(o)
	return body
}

// started returns the first session and the first message of a person in a recording.
func started(all []events.Event) (session, prompt string) {
	for _, e := range all {
		switch b := payload(e).(type) {
		case opencode.SessionStatus:
			session = cmp.Or(session, b.SessionID)
		case opencode.SessionUpdated:
			session = cmp.Or(session, b.SessionID)
		case opencode.MessageUpdated:
			if b.Info.Role == "user" {
				prompt = cmp.Or(prompt, b.Info.ID)
			}
		}
	}
	return session, cmp.Or(prompt, "msg_unseen")
}

// conversation puts a recording into a chat of ours as it happens: the person's message first, then what OpenCode makes
// of it. The message counts as delivered after the first of its events.
func conversation(t testing.TB, name string) []events.Event {
	t.Helper()
	oc := recording(t, name)
	ses, msg := started(oc)
	all := []events.Event{
		own(t, user, events.ChatCreated{Title: "Chat", User: "ann", Engine: engine}),
		own(t, user, events.MessageSubmitted{Message: ours, Parts: []events.Part{{Type: "text", Text: "what I wrote"}}}),
		own(t, events.EngineActor(engine), events.SessionBound{Session: ses, Directory: directed}),
		own(t, events.EngineActor(engine), events.MessageSending{Message: ours, Session: ses, EngineMessage: msg,
			EngineParts: []string{"prt_1"}}),
	}
	all = append(all, oc[:1]...)
	all = append(all, own(t, events.EngineActor(engine), events.MessageDelivered{Message: ours, EngineMessage: msg}))
	return append(all, oc[1:]...)
}

// model opens read models over a fresh log that holds the events, and waits until they are applied.
func model(t testing.TB, all []events.Event) *projections.Model {
	t.Helper()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	if len(all) > 0 {
		last, err := log.AppendAll(t.Context(), all)
		is.NoErr(err)
		is.NoErr(m.Wait(t.Context(), last))
	}
	return m
}

// still opens read models without a worker: feed applies events to them.
func still(t testing.TB) *projections.Model {
	t.Helper()
	m, err := projectionstest.Open(t.Context(), expect.MemoryDir(t), eventstest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// feed applies events as if they came next in the log, 7 ms apart.
func feed(t testing.TB, m *projections.Model, all ...events.Event) {
	t.Helper()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range all {
		all[i].Seq = m.Seq() + uint64(i) + 1
		all[i].Time = start.Add(time.Duration(all[i].Seq) * 7 * time.Millisecond)
	}
	if err := m.Apply(all); err != nil {
		t.Fatal(err)
	}
}

// running opens read models and runs their worker until the test ends.
func running(t testing.TB, dir string, log *log.Log) *projections.Model {
	t.Helper()
	m, err := projectionstest.Open(t.Context(), dir, log)
	if err != nil {
		t.Fatal(err)
	}
	stop := work(t, m)
	t.Cleanup(func() { stop(); m.Close() })
	return m
}

// work runs the worker until stop is called.
func work(t testing.TB, m *projections.Model) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the worker ended with %v", err)
		}
	})
}

// copies returns the events n times, each time with new ids.
func copies(t testing.TB, all []events.Event, n int) []events.Event {
	t.Helper()
	ids := regexp.MustCompile(`\b((?:ses|msg|prt|per|que|evt)_\w+|call_\w+)\b`)
	var out []events.Event
	for i := range n {
		for _, e := range all {
			suffix := fmt.Sprintf("x%d", i)
			e.Data = ids.ReplaceAll(e.Data, []byte("${1}"+suffix))
			e.ID += suffix
			out = append(out, e)
		}
	}
	return out
}
