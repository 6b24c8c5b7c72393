package webtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/events"
	"pocketcoder/events/log"
)

// ChatWithAnswer is a chat with a session of its own.
func (s *System) ChatWithAnswer(t testing.TB, token string) (chat string) {
	t.Helper()
	chat = s.Chat(t, token, "talk")
	s.Append(t, chat, events.SessionBound{Session: "ses_own", Directory: "/w"})
	return chat
}

// AppendFailure appends that a message of a person failed, which ends the events of a chat.
func (s *System) AppendFailure(t testing.TB, chat, why string) {
	t.Helper()
	id := events.NewID()
	s.Append(t, chat, events.MessageSubmitted{Message: id, Parts: []events.Part{{Type: "text", Text: "hello"}}})
	s.Append(t, chat, events.MessageFailed{Message: id, Domain: "infrastructure", Error: why})
}

func (s *System) Fragment(t testing.TB, chat, message, part, text string) {
	t.Helper()
	s.Delta(t, chat, "message.part.delta", fmt.Sprintf(`{"sessionID":"ses_own","messageID":%q,"partID":%q,"field":"text","delta":%q}`, message, part, text))
}

func (s *System) Delta(t testing.TB, chat, typ, data string) {
	t.Helper()
	Check(t, s.Log.PublishDelta(log.Delta{Subject: events.PartDeltaSubject(chat), Type: "opencode." + typ,
		Data: []byte(data)}))
}

// Assistant is an assistant message of the chat's own session; more is further JSON of its info.
func (s *System) Assistant(t testing.TB, chat, id, more string) {
	t.Helper()
	s.AppendOpenCode(t, chat, "message.updated", fmt.Sprintf(`{"sessionID":"ses_own","info":{"id":%q,"role":"assistant","parentID":"msg_0"%s}}`, id, more))
}

// AppendRefusedPicture appends a message with photo.png, and that the provider refused it.
func (s *System) AppendRefusedPicture(t testing.TB, chat string) {
	t.Helper()
	s.Append(t, chat, events.SessionBound{Session: "ses_own", Directory: "/w"})
	s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"msg_0","role":"user"}}`)
	s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_0","messageID":"msg_0","sessionID":"ses_own",
		"type":"file","mime":"image/png","filename":"photo.png","url":"data:image/png;base64,AAAA"}}`)
	s.Assistant(t, chat, "msg_1", `,"time":{"created":1,"completed":2},"error":{"name":"APIError","data":{"message":"Could not process image","statusCode":400}}`)
}

// TextPart appends a text part; more is further JSON of it.
func (s *System) TextPart(t testing.TB, chat, message, part, text, more string) {
	t.Helper()
	s.AppendOpenCode(t, chat, "message.part.updated", fmt.Sprintf(`{"sessionID":"ses_own","part":{"id":%q,"messageID":%q,"sessionID":"ses_own","type":"text","text":%q%s}}`, part, message, text, more))
}

// Ended is further JSON of a message or part that has ended.
const Ended = `,"time":{"completed":2}`

// Endings returns the messages that ended, up to the failure with the text end. It checks the events before each.
func (f *Follower) Endings(t testing.TB) (all []string) {
	t.Helper()
	is := is.New(t)
	grown, over := map[string]string{}, map[string]bool{}
	for {
		got := f.Next(t)
		d := got.Data.Data
		id, _ := d["messageID"].(string)
		switch got.Data.Event {
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
			t.Fatal(got.Raw)
		}
	}
}

// Play appends a recorded run of OpenCode to a chat.
func (s *System) Play(t testing.TB, chat, trace string) {
	t.Helper()
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
	for _, event := range opencodetest.RecordedEvents(t, trace) {
		var l struct{ Payload payload }
		Check(t, json.Unmarshal(event, &l))
		p := l.Payload
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
		Check(t, json.Unmarshal(data, &about))
		switch {
		case typ == "message.part.delta":
			s.Delta(t, chat, typ, string(data))
		case about.SessionID != "":
			if !bound { // the first session is the chat's own
				bound = true
				s.Append(t, chat, events.SessionBound{Session: about.SessionID, Directory: "/workspace"})
			}
			e, err := events.NewOpenCode(chat, "local", id, seq, events.OpenCode{Type: typ, Properties: data})
			Check(t, err)
			_, err = s.Log.Append(t.Context(), e)
			Check(t, err)
		}
	}
}

// AwaitText waits for a snapshot with a text.
func (f *Follower) AwaitText(t testing.TB, text string) {
	t.Helper()
	for {
		got := f.Next(t)
		if got.Data.Event != "message_snapshot" {
			continue
		}
		for _, p := range got.Data.Data["parts"].([]any) {
			if p.(map[string]any)["text"] == text {
				return
			}
		}
	}
}
