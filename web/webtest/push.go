package webtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pocketcoder/events"
)

// phone is a push service with one device behind it.
type phone struct {
	*httptest.Server
	Got chan pushMessage
}

type pushMessage struct {
	header http.Header
	Body   string
}

// NewPhone starts a push service that stops with the test.
func NewPhone(t testing.TB) phone {
	t.Helper()
	p := phone{Got: make(chan pushMessage, 16)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); r.Method == http.MethodPost {
			p.Got <- pushMessage{r.Header, string(body)}
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// Next waits for a notification.
func (p phone) Next(t testing.TB) pushMessage {
	t.Helper()
	select {
	case got := <-p.Got:
		return got
	case <-time.After(patience):
		t.Fatalf("no notification within %s", patience)
		return pushMessage{}
	}
}

// Button returns the address of a button of the next notification.
func (p phone) Button(t testing.TB, label string) string {
	t.Helper()
	actions := p.Next(t).header.Get("Actions")
	_, rest, found := strings.Cut(actions, "http, "+label+", ")
	if !found {
		t.Fatalf("no button %s in %q", label, actions)
	}
	address, _, _ := strings.Cut(rest, ",")
	return address
}

// Phone creates a device of an account, and returns the id of its record.
func (s *System) Phone(t testing.TB, token string, p phone) string {
	t.Helper()
	status, d := s.Call(t, token, "POST", RecordsPath("devices"),
		map[string]any{"name": "Phone", "push_service": "unifiedpush", "push_token": p.URL + "/topic", "is_active": true})
	if status != http.StatusOK {
		t.Fatalf("create device: %d %v", status, d)
	}
	return d["id"].(string)
}

// AppendReferral appends that the policy leaves a request to a person.
func (s *System) AppendReferral(t testing.TB, chat, request string) (record string) {
	t.Helper()
	record = s.AppendRequest(t, chat, request)
	s.Append(t, chat, events.PermissionReferred{Permission: request, Reason: "no rule allows it", Cwd: "/workspace"})
	return record
}
