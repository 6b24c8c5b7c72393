package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

// login is an account that is logged in to a system over HTTP; without a token it is a guest.
type login struct {
	*process
	token string
	id    string // of the account
	email string
}

func (p *process) login(t testing.TB, email, password string) login {
	t.Helper()
	var auth struct {
		Token  string
		Record struct{ ID string }
	}
	login{process: p}.must(t, "POST", "/api/collections/users/auth-with-password",
		map[string]any{"identity": email, "password": password}, &auth)
	return login{p, auth.Token, auth.Record.ID, email}
}

// admin is the administrator of the system, who logs in once: each hash of a password takes 0.1 s of processor time.
func (p *process) admin(t testing.TB) login {
	t.Helper()
	p.administrator.Lock()
	defer p.administrator.Unlock()
	if p.administrator.token == "" {
		p.administrator.login = p.login(t, adminEmail, adminPassword)
	}
	return p.administrator.login
}

// reply is the answer to a request.
type reply struct {
	code   int
	header http.Header
	body   string
}

// do sends a request. headers are alternating names and values.
func (l login) do(t testing.TB, method, path string, body any, headers ...string) reply {
	t.Helper()
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		sent = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, l.HTTP+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if l.token != "" {
		r.Header.Set("Authorization", l.token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// must makes a request that succeeds, and reads its JSON into answer unless that is nil.
func (l login) must(t testing.TB, method, path string, body, answer any) {
	t.Helper()
	r := l.do(t, method, path, body)
	if r.code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, r.code, r.body)
	}
	if answer != nil {
		if err := json.Unmarshal([]byte(r.body), answer); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, r.body)
		}
	}
}

// record is one of the records API.
type record = map[string]any

func recordPath(collection, id string) string {
	return "/api/collections/" + collection + "/records/" + url.PathEscape(id)
}

// list gives the records of a collection that a filter leaves, oldest first.
func (l login) list(t testing.TB, collection, filter string) []record {
	t.Helper()
	var page struct{ Items []record }
	l.must(t, "GET", "/api/collections/"+collection+"/records?perPage=500&sort=created&filter="+url.QueryEscape(filter),
		nil, &page)
	return page.Items
}

// create makes a record and gives its id.
func (l login) create(t testing.TB, collection string, fields record) string {
	t.Helper()
	var made struct{ ID string }
	l.must(t, "POST", "/api/collections/"+collection+"/records", fields, &made)
	return made.ID
}

// say submits a message: a script of the demo model.
func (l login) say(t testing.TB, chat, script string) {
	t.Helper()
	l.create(t, "messages", record{"chat": chat, "role": "user", "parts": []record{{"type": "text", "text": script}}})
}

// awaitRequest waits for the pending request of a chat.
func (l login) awaitRequest(t testing.TB, chat string) (request record) {
	t.Helper()
	expect.Eventually(t, "a request of chat "+chat, func() bool {
		drafts := l.list(t, "permissions", `chat = "`+chat+`" && status = "draft"`)
		if len(drafts) > 0 {
			request = drafts[0]
		}
		return len(drafts) > 0
	})
	return request
}

// authorize approves a request.
func (l login) authorize(t testing.TB, request record) (decided record) {
	t.Helper()
	l.must(t, "PATCH", recordPath("permissions", request["id"].(string)), record{"status": "authorized"}, &decided)
	return decided
}

func decode(t testing.TB, body string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), into); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}

const somePassword = "a long enough password"

// account makes an account with a role and logs it in.
func (p *process) account(t testing.TB, role string) login {
	t.Helper()
	email := strings.ToLower(events.NewID()) + "@example.org"
	_, stderr, code := p.cli(t, somePassword+"\n", "user", "add", email, "--role", role)
	if code != 0 {
		t.Fatalf("user add: %d %s", code, stderr)
	}
	return p.login(t, email, somePassword)
}
