package pages_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/webtest"
)

func TestTheServiceWorkerKnowsEveryFileOfItsVersion(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	b := newBrowser(t, s)
	worker := b.visit(t, "/sw.js") // from the root, whose pages it handles
	is.Equal([]any{worker.status, worker.header.Get("Content-Type"), worker.header.Get("Cache-Control")},
		[]any{200, "text/javascript; charset=utf-8", "no-store"})
	expect.Contains(t, worker.header.Get("Content-Security-Policy"), "worker-src 'self'")
	line, program, _ := strings.Cut(worker.body, "\n")
	own, err := fs.ReadFile(site.Static, "sw.js")
	is.NoErr(err)
	is.Equal(program, string(own))
	var settings struct {
		Version, Header, Deadline string
		Files                     []string
		Texts                     map[string]string
	}
	is.NoErr(json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(line, "const settings = "), ";")), &settings))
	is.Equal(len(settings.Version), 16)
	is.Equal([]string{settings.Header, settings.Deadline}, []string{"Pocketcoder-Account", "Pocketcoder-Deadline"})
	for _, path := range settings.Files {
		is.Equal(b.visit(t, path).status, http.StatusOK) // path
	}
	offline := b.visit(t, "/offline").body
	for _, text := range []string{offline, b.visit(t, "/login").body} { // every file that pages name is stored
		for _, part := range strings.Split(text, `"/static/`)[1:] {
			name, _, _ := strings.Cut(part, `"`)
			expect.Contains(t, fmt.Sprint(settings.Files), "/static/"+name)
		}
	}
	is.Equal(b.visit(t, "/sw.js").body, worker.body) // the same as long as nothing changes
}

func TestAPageNamesItsAccountAndALoginDoesNot(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	b := loggedIn(t, s, "ada")
	for _, path := range []string{"/", "/requests", "/chats/" + chat, "/account"} {
		is.Equal(b.visit(t, path).header.Get("Pocketcoder-Account"), id) // path
	}
	guest := newBrowser(t, s)
	for _, path := range []string{"/login", "/setup", "/offline", "/sw.js", "/chats/" + chat} {
		is.Equal(guest.visit(t, path).header.Get("Pocketcoder-Account"), "") // path
	}
}

// A decision that waited in a browser is not another account's, which has logged in there since.
func TestAFormOfAnotherAccountIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, token := s.User(t, "ada", "user")
	s.User(t, "root", "admin")
	chat := s.Chat(t, token, "Tidy up")
	request := s.AppendReferral(t, chat, "per_1")
	_, stored := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+request, nil)
	decide := func(b *browser) (int, string) {
		form := url.Values{"decision": {"authorized"}, "shown_request": {stored["request"].(string)}, "from": {"chat"}}
		r, err := http.NewRequestWithContext(t.Context(), "POST", b.url+"/chats/"+chat+"/requests/"+request,
			strings.NewReader(form.Encode()))
		is.NoErr(err)
		r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {b.url},
			"Accept": {"text/plain"}, "Pocketcoder-Account": {id}}
		resp, err := b.Client.Do(r)
		is.NoErr(err)
		defer resp.Body.Close()
		text := make([]byte, 200)
		n, _ := resp.Body.Read(text)
		return resp.StatusCode, string(text[:n])
	}
	status, text := decide(loggedIn(t, s, "root")) // an administrator could decide it
	is.Equal([]any{status, text}, []any{http.StatusForbidden, "Another account filled in this form. Open the page again."})
	ada := loggedIn(t, s, "ada")
	status, _ = decide(ada)
	is.Equal(status, http.StatusNoContent)
	status, _ = decide(ada) // a browser that got no answer sends it again
	is.Equal(status, http.StatusNoContent)
	_, other := s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+request,
		map[string]any{"status": "denied"})
	is.True(other["data"] != nil)
	refused := ada.submit(t, "/chats/"+chat+"/requests/"+request,
		url.Values{"decision": {"denied"}, "shown_request": {stored["request"].(string)}})
	is.Equal(refused.status, http.StatusBadRequest)
	expect.Contains(t, refused.body, ">The permission is authorized already.<")
}

func TestABrowserSubscribesToNotifications(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, token := s.User(t, "ada", "user")
	_, bobs := s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	expect.Contains(t, b.visit(t, "/account").body, `data-key="public"`)
	refused := b.submit(t, "/account/browsers", url.Values{"push_token": {"x"}})
	is.Equal(refused.status, http.StatusBadRequest)
	expect.Contains(t, refused.body, "The form has no subscription of a browser.")

	subscription := `{"endpoint":"https://push.example.org/secret","expirationTime":null,"keys":{"p256dh":"BP","auth":"AA"}}`
	for range 2 { // the second renews the first
		after := b.submit(t, "/account/browsers", url.Values{"push_token": {subscription}})
		is.Equal([]any{after.status, after.path}, []any{http.StatusOK, "/account"})
		expect.Lacks(t, after.body, "push.example.org") // who has the address can send notifications
	}
	_, list := s.Call(t, token, "GET", webtest.RecordsPath("devices"), nil)
	is.Equal(list["totalItems"], 1.0)
	device := list["items"].([]any)[0].(map[string]any)
	is.Equal([]any{device["user"], device["push_service"], device["push_token"], device["is_active"]},
		[]any{id, "webpush", subscription, true})
	path := "/account/browsers/" + device["id"].(string)
	expect.Contains(t, b.visit(t, "/account").body, `action="`+path+`/test"`)

	s.Call(t, bobs, "POST", webtest.RecordsPath("devices"), map[string]any{"name": "Bob's", "push_service": "webpush",
		"push_token": "y", "is_active": true})
	expect.Lacks(t, b.visit(t, "/account").body, "Bob&#39;s")
	bob := loggedIn(t, s, "bob")
	for _, command := range []string{"/test", "/remove"} {
		is.Equal(bob.submit(t, path+command, nil).status, http.StatusNotFound) // command
	}
	// as when the push service does not know it
	s.Call(t, token, "PATCH", webtest.RecordsPath("devices")+"/"+device["id"].(string), map[string]any{"is_active": false})
	inactive := b.visit(t, "/account").body
	expect.Contains(t, inactive, "inactive: subscribe again")
	expect.Lacks(t, inactive, path+"/test")
	is.Equal(b.submit(t, path+"/remove", nil).path, "/account")
	expect.Lacks(t, b.visit(t, "/account").body, path)
}
