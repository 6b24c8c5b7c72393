package webtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"pocketcoder/events"
)

// Open begins a request whose answer is read bit by bit. It is over with the test, or when the body is closed.
func (s *System) Open(t testing.TB, token, path, lastEventID string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	Check(t, err)
	r.Header.Set("Authorization", token)
	if lastEventID != "" {
		r.Header.Set("Last-Event-ID", lastEventID)
	}
	resp, err := http.DefaultClient.Do(r)
	Check(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// SSE is an event stream as a client reads it.
type SSE struct{ *bufio.Reader }

func (s *System) Stream(t testing.TB, token, path, lastEventID string) SSE {
	t.Helper()
	resp := s.Open(t, token, path, lastEventID)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s %s", path, resp.Status, body)
	}
	return SSE{bufio.NewReader(resp.Body)}
}

// Frame returns the next whole event: its bytes, and its fields by name.
func (s SSE) Frame() (raw string, fields map[string]string, err error) {
	fields = map[string]string{}
	for {
		line, err := s.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		if raw += line; line == "\n" {
			return raw, fields, nil
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		fields[name] = value
	}
}

// Next returns the next event. The test fails if there is none.
func (s SSE) Next(t testing.TB) map[string]string {
	t.Helper()
	_, fields, err := s.Frame()
	Check(t, err)
	return fields
}

// Wire returns what a stream of a filter sends of the events stored after a sequence.
func (s *System) Wire(t testing.TB, filter string, after uint64) string {
	t.Helper()
	var b strings.Builder
	_, err := s.Log.Fold(t.Context(), filter, after, func(e events.Event) error {
		data, err := json.Marshal(e)
		name := e.Subject.Kind
		if e.Malformed != nil {
			name = "malformed"
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, name, data)
		return err
	})
	Check(t, err)
	return b.String()
}

// Fill appends n OpenCode events of different sizes to a chat: one is too large for a message.
func (s *System) Fill(t testing.TB, chat string, n int) {
	t.Helper()
	var all []events.Event
	for i := range n {
		size := i % 40 * 20
		if i == n/2 {
			size = 40 << 10
		}
		body, err := json.Marshal(map[string]string{"text": strings.Repeat("\u00e9\r\n<\u2028", size)})
		Check(t, err)
		e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), int64(i),
			events.OpenCode{Type: "message.part.updated", Properties: body})
		Check(t, err)
		all = append(all, e)
	}
	_, err := s.Log.AppendAll(t.Context(), all)
	Check(t, err)
}

// EventsOf is the path of a chat's events.
func EventsOf(chat string) string { return "/api/chats/" + chat + "/events" }
