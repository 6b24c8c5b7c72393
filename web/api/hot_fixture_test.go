package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// fact appends a fact of our own about a chat, and waits until it shows.
func (s *system) fact(t testing.TB, chat string, d events.Data) {
	t.Helper()
	e, err := events.New(chat, events.ActorSystem, d)
	check(t, err)
	seq, err := s.log.Append(t.Context(), e)
	check(t, err)
	check(t, s.model.Wait(t.Context(), seq))
}

// talking is a chat with a session of its own.
func (s *system) talking(t testing.TB, token string) (chat string) {
	t.Helper()
	chat = s.chat(t, token, "talk")
	s.fact(t, chat, events.SessionBound{Session: "ses_own", Directory: "/w"})
	return chat
}

// fails makes a message of a person's fail, which ends what is heard of a chat.
func (s *system) fails(t testing.TB, chat, why string) {
	t.Helper()
	id := events.NewID()
	s.fact(t, chat, events.MessageSubmitted{Message: id, Parts: []events.Part{{Type: "text", Text: "hello"}}})
	s.fact(t, chat, events.MessageFailed{Message: id, Domain: "infrastructure", Error: why})
}

func (s *system) fragment(t testing.TB, chat, message, part, text string) {
	t.Helper()
	s.delta(t, chat, message, part, "message.part.delta", fmt.Sprintf(`{"sessionID":"ses_own","messageID":%q,"partID":%q,"field":"text","delta":%q}`, message, part, text))
}

func (s *system) delta(t testing.TB, chat, message, part, typ, data string) {
	t.Helper()
	check(t, s.log.PublishDelta(log.Delta{Subject: events.MessageDeltaSubject(chat, message, part), Type: "opencode." + typ, Data: []byte(data)}))
}

// assistant is an assistant message of the chat's own session; more is further JSON of its info.
func (s *system) assistant(t testing.TB, chat, id, more string) {
	t.Helper()
	s.said(t, chat, "message.updated", fmt.Sprintf(`{"sessionID":"ses_own","info":{"id":%q,"role":"assistant","parentID":"msg_0"%s}}`, id, more))
}

func (s *system) textPart(t testing.TB, chat, message, part, text, more string) {
	t.Helper()
	s.said(t, chat, "message.part.updated", fmt.Sprintf(`{"sessionID":"ses_own","part":{"id":%q,"messageID":%q,"sessionID":"ses_own","type":"text","text":%q%s}}`, part, message, text, more))
}

const ended = `,"time":{"completed":2}`

// endings gives what ended, up to the failure that says end, and checks what came before each.
func (f *follower) endings(t testing.TB) (all []string) {
	t.Helper()
	is := is.New(t)
	grown, over := map[string]string{}, map[string]bool{}
	for {
		got := f.next(t)
		d := got.data.Data
		id, _ := d["messageID"].(string)
		switch got.data.Event {
		case "text_delta":
			grown[d["partID"].(string)] += d["text"].(string)
			is.True(!over[id])
		case "tool_status", "message_snapshot":
			is.True(!over[id])
		case "message_complete":
			is.True(!over[id])
			over[id] = true
			is.Equal(d["role"], "assistant")
			var parts []string
			for _, p := range d["parts"].([]any) {
				part := p.(map[string]any)
				text, _ := part["text"].(string)
				is.True(strings.HasPrefix(text, grown[part["id"].(string)])) // in order, and nothing twice
				parts = append(parts, strings.TrimSpace(fmt.Sprint(part["type"], " ", text)))
			}
			all = append(all, fmt.Sprintf("%s: %s", d["status"], strings.Join(parts, ", ")))
		case "message_error":
			is.True(!over[id])
			over[id] = true
			if text := d["error"].(map[string]any)["message"].(string); text != "end" {
				all = append(all, "error: "+text)
				continue
			}
			return all
		default:
			t.Fatal(got.raw)
		}
	}
}

// play appends a recorded run of OpenCode to a chat.
func (s *system) play(t testing.TB, chat, trace string) {
	t.Helper()
	text, err := os.ReadFile("../../bridge/opencode/testdata/" + trace + ".jsonl")
	check(t, err)
	type payload struct {
		ID, Type   string
		Properties json.RawMessage
		SyncEvent  struct {
			ID, Type string
			Seq      int64
			Data     json.RawMessage
		}
	}
	durable := map[string]bool{}
	var lines []payload
	for line := range bytes.Lines(text) {
		var l struct{ Ev struct{ Payload payload } }
		check(t, json.Unmarshal(line, &l))
		p := l.Ev.Payload
		if p.Type == "sync" {
			durable[p.SyncEvent.ID] = true
		}
		lines = append(lines, p)
	}
	bound := false
	for _, p := range lines {
		id, typ, seq, data := p.ID, p.Type, int64(-1), p.Properties
		var about struct {
			SessionID, MessageID, PartID string
		}
		if typ == "sync" {
			id, typ, seq, data = p.SyncEvent.ID, strings.TrimSuffix(p.SyncEvent.Type, ".1"), p.SyncEvent.Seq, p.SyncEvent.Data
		} else if durable[id] || data == nil {
			continue
		}
		check(t, json.Unmarshal(data, &about))
		switch {
		case typ == "message.part.delta":
			s.delta(t, chat, about.MessageID, about.PartID, typ, string(data))
		case about.SessionID != "":
			if !bound { // the first session is the chat's own
				bound = true
				s.fact(t, chat, events.SessionBound{Session: about.SessionID, Directory: "/workspace"})
			}
			e, err := events.NewOpenCode(chat, "local", id, seq, events.OpenCode{Type: typ, Properties: data})
			check(t, err)
			_, err = s.log.Append(t.Context(), e)
			check(t, err)
		}
	}
}

// hears waits for a snapshot with a text.
func (f *follower) hears(t testing.TB, text string) {
	t.Helper()
	for {
		got := f.next(t)
		if got.data.Event != "message_snapshot" {
			continue
		}
		for _, p := range got.data.Data["parts"].([]any) {
			if p.(map[string]any)["text"] == text {
				return
			}
		}
	}
}
