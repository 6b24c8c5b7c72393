package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// phone is a push service with one device behind it.
type phone struct {
	*httptest.Server
	got chan pushMessage
}

type pushMessage struct {
	method string
	header http.Header
	Title  string
	Type   string
	Chat   string
	Text   string `json:"message"`
}

func newPhone(t *testing.T) phone {
	t.Helper()
	p := phone{got: make(chan pushMessage, 64)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		one := pushMessage{method: r.Method, header: r.Header}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &one)
		p.got <- one
	}))
	t.Cleanup(p.Close)
	return p
}

// next waits for a request.
func (p phone) next(t *testing.T) pushMessage {
	t.Helper()
	select {
	case one := <-p.got:
		return one
	case <-time.After(eventTimeout):
		t.Fatal("the phone gets nothing")
		return pushMessage{}
	}
}

// address returns where a button leads.
func (one pushMessage) address(t *testing.T, label string) string {
	t.Helper()
	_, rest, found := strings.Cut(one.header.Get("Actions"), "http, "+label+", ")
	if !found {
		t.Fatalf("there is no button %s: %s", label, one.header.Get("Actions"))
	}
	address, _, _ := strings.Cut(rest, ",")
	return address
}

// press sends the request that ntfy sends when a person presses a button.
func (one pushMessage) press(t *testing.T, label string) int {
	t.Helper()
	resp, err := http.Post(one.address(t, label), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestCommandIsApprovedOnANotification(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	phone := newPhone(t)
	owner := p.account(t, "user")
	owner.create(t, "devices", record{"name": "My phone", "push_service": "unifiedpush",
		"push_token": phone.URL + "/topic", "is_active": true})
	chat := owner.create(t, "chats", record{"title": "Errands"})

	owner.say(t, chat, bash("echo hello >greeting"))
	one := phone.next(t)
	is.Equal([]string{one.Title, one.Type, one.Chat}, []string{"Run echo hello >greeting", "permission", chat})
	is.True(strings.HasPrefix(one.Text, "echo hello >greeting\n"))
	path := strings.TrimPrefix(one.header.Get("Click"), p.HTTP)
	page := owner.do(t, "GET", path, nil)
	is.Equal(page.code, http.StatusOK) // a tap opens the request's page, after the login
	expect.Contains(t, page.body, `name="next" value="`+path+`"`)
	is.Equal(one.press(t, "Approve"), http.StatusOK)
	is.Equal(phone.next(t).method, http.MethodPut) // it is withdrawn
	p.turnEnds(t, chat)
	written, err := os.ReadFile(filepath.Join(p.workspace, "greeting"))
	is.NoErr(err)
	is.Equal(string(written), "hello\n")
	is.True(one.press(t, "Approve") != http.StatusOK)
	is.True(one.press(t, "Deny") != http.StatusOK)
	decided := owner.list(t, "permissions", `chat = "`+chat+`"`)
	is.Equal([]any{decided[0]["status"], decided[0]["approved_by"], decided[0]["device"]},
		[]any{"authorized", owner.id, "My phone"})
	is.Equal(phone.next(t).Type, "task_complete")
}
