package web_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/web/ports"
	"pocketcoder/web/webtest"
)

// browser is one that visits the origin of a port: it keeps the cookies of that host.
type browser struct {
	s       *webtest.System
	host    string
	cookies []*http.Cookie
}

// do sends a request to the host. It connects to the system, whatever address the host's name has.
func (b *browser) do(t testing.TB, method, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.s.URL+path, nil)
	webtest.Check(t, err)
	r.Host = b.host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	webtest.Check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	webtest.Check(t, err)
	b.cookies = append(b.cookies, resp.Cookies()...)
	return resp, string(body)
}

// portURL opens a port and returns the host of its origin and the path with the ticket.
func portURL(s *webtest.System, t testing.TB, token, chat string, port int) (host, ticket string) {
	t.Helper()
	status, answer := s.Call(t, token, "POST", fmt.Sprintf("/api/chats/%s/ports/%d", chat, port), nil)
	if status != http.StatusOK {
		t.Fatalf("open port: %d %v", status, answer)
	}
	u, err := url.Parse(answer["url"].(string))
	webtest.Check(t, err)
	return u.Host, u.Path
}

func TestAPortHasAnOriginWhereLinksCookiesAndStorageWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	chat := s.Chat(t, owner, "mine")
	var inside http.Header
	port := s.Serve(t, chat, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside = r.Header.Clone()
		w.Header().Add("Set-Cookie", "session=1; Path=/; Domain=localhost; HttpOnly")
		w.Header().Add("Set-Cookie", "pocketcoder-port=stolen; Path=/")
		w.Header().Set("Strict-Transport-Security", "max-age=9; includeSubDomains")
		w.Header().Set("Clear-Site-Data", `"*"`)
		if r.URL.Path == "/to" {
			http.Redirect(w, r, "http://"+r.Host+"/there", http.StatusFound)
			return
		}
		json.NewEncoder(w).Encode(map[string]string{"host": r.Host, "path": r.URL.EscapedPath(), "query": r.URL.RawQuery})
	}))
	host, ticket := portURL(s, t, owner, chat, port)
	is.True(strings.HasPrefix(host, fmt.Sprint(port)+"-"))
	second, _ := portURL(s, t, owner, chat, port)
	is.Equal(second, host) // what the page stored is there the next time

	b := &browser{s: s, host: host}
	resp, _ := b.do(t, "GET", "/")
	is.Equal(resp.StatusCode, http.StatusUnauthorized) // a ticket is required
	resp, _ = b.do(t, "GET", ticket, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
		"document")
	is.Equal([]any{resp.StatusCode, resp.Header.Get("Location")}, []any{http.StatusSeeOther, "/"})
	is.Equal(len(b.cookies), 1)
	is.True(b.cookies[0].HttpOnly && b.cookies[0].SameSite == http.SameSiteLaxMode && b.cookies[0].Domain == "")

	resp, body := b.do(t, "GET", "/a%2Fb/app.js?x=1", "Origin", "http://"+host, "Sec-Fetch-Site", "same-origin",
		"Authorization", "Bearer app")
	is.Equal(resp.StatusCode, http.StatusOK)
	is.Equal(strings.TrimSpace(body), fmt.Sprintf(`{"host":"localhost:%d","path":"/a%%2Fb/app.js","query":"x=1"}`, port))
	is.Equal(resp.Header.Values("Set-Cookie"), []string{"session=1; Path=/; HttpOnly"}) // of this host alone
	is.Equal([]string{resp.Header.Get("Strict-Transport-Security"), resp.Header.Get("Clear-Site-Data")}, []string{"", ""})
	expect.Lacks(t, strings.Join(resp.Header.Values("Content-Security-Policy"), " "), "sandbox") // it has an origin
	is.Equal(inside.Get("Origin"), fmt.Sprint("http://localhost:", port))
	is.Equal(inside.Get("Authorization"), "Bearer app") // the page's own
	resp, _ = b.do(t, "GET", "/to")
	is.Equal(resp.Header.Get("Location"), "/there")
	is.Equal(inside.Get("Cookie"), "session=1") // and not ours
}

func TestAPageOfAPortRegistersNoServiceWorker(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	chat := s.Chat(t, owner, "mine")
	var scripts atomic.Int64
	port := s.Serve(t, chat, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/worker.js" {
			scripts.Add(1)
		}
		w.Header().Set("Service-Worker-Allowed", "/")
	}))
	host, ticket := portURL(s, t, owner, chat, port)
	b := &browser{s: s, host: host}
	b.do(t, "GET", ticket)
	resp, _ := b.do(t, "GET", "/")
	is.Equal(resp.StatusCode, http.StatusOK)
	is.Equal(resp.Header.Values("Service-Worker-Allowed"), nil)
	for _, header := range [][]string{{"Service-Worker", "script"}, {"Sec-Fetch-Dest", "serviceworker"}} {
		resp, body := b.do(t, "GET", "/worker.js", append(header, "Sec-Fetch-Site", "same-origin")...)
		is.Equal(resp.StatusCode, http.StatusForbidden)
		expect.Contains(t, body, "cannot register a service worker")
		for _, path := range []string{opened(s, t, owner, chat, port), fmt.Sprintf("/api/chats/%s/ports/%d/", chat, port)} {
			resp, _ = portRequest(s, t, "GET", path+"worker.js",
				http.Header{"Authorization": {owner}, header[0]: {header[1]}}, "")
			is.Equal(resp.StatusCode, http.StatusForbidden)
		}
	}
	is.Equal(scripts.Load(), int64(0))
	resp, _ = b.do(t, "GET", "/worker.js") // a script as any other
	is.Equal(resp.StatusCode, http.StatusOK)
}

func TestTheOriginOfAPortLetsOneBrowserInAndNoForeignPage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	eve, stranger := s.User(t, "eve", account.User)
	chatID := s.Chat(t, owner, "mine")
	port, other := s.Serve(t, chatID, http.HandlerFunc(echo)), s.Serve(t, chatID, http.HandlerFunc(echo))
	host, ticket := portURL(s, t, owner, chatID, port)
	otherHost, otherTicket := portURL(s, t, owner, chatID, other)
	is.True(host != otherHost)
	status, _ := s.Raw(t, stranger, "POST", fmt.Sprintf("/api/chats/%s/ports/%d", chatID, port), nil)
	is.Equal(status, http.StatusNotFound)

	get := func(b *browser, path string, headers ...string) int {
		t.Helper()
		resp, _ := b.do(t, "GET", path, headers...)
		return resp.StatusCode
	}
	b := &browser{s: s, host: host}
	is.Equal(get(b, otherTicket), http.StatusUnauthorized) // a ticket is for its own host
	is.Equal(get(b, ticket), http.StatusSeeOther)
	is.Equal(get(b, "/"), http.StatusOK)
	is.Equal(get(&browser{s: s, host: host}, ticket), http.StatusUnauthorized) // once
	is.Equal(get(b, ticket), http.StatusSeeOther)                              // but a browser that is in may reload it
	is.Equal(get(&browser{s: s, host: otherHost, cookies: b.cookies}, "/"), http.StatusUnauthorized)
	status, _ = s.Raw(t, b.cookies[0].Value, "GET", webtest.RecordsPath("chats"), nil)
	is.Equal(status, http.StatusUnauthorized) // the cookie is no token

	for _, headers := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://" + otherHost},
		{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"},
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
	} {
		is.Equal(get(b, "/", headers...), http.StatusForbidden)
	}
	resp, _ := b.do(t, "POST", "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
		"document")
	is.Equal(resp.StatusCode, http.StatusForbidden)
	// a link leads there
	is.Equal(get(b, "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"),
		http.StatusOK)

	_, err := s.Chats.Update(t.Context(), chat.Update{Command: handlers.Command{Actor: events.ActorSystem}, Chat: chatID,
		User: &eve})
	is.NoErr(err)
	expect.Eventually(t, "the chat has another owner", func() bool { return get(b, "/") == http.StatusNotFound })
}

func TestTheOriginOfAPortEndsWithTheLogin(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, owner := s.User(t, "ada", account.User)
	chat := s.Chat(t, owner, "mine")
	port := s.Serve(t, chat, http.HandlerFunc(echo))
	host, ticket := portURL(s, t, owner, chat, port)
	b := &browser{s: s, host: host}
	b.do(t, "GET", ticket)
	resp, _ := b.do(t, "GET", "/")
	is.Equal(resp.StatusCode, http.StatusOK)
	identity, err := s.Accounts.Check(owner)
	is.NoErr(err)
	is.NoErr(s.Accounts.Revoke(t.Context(), account.RevokeSession{Account: id, Session: identity.Session}))
	resp, _ = b.do(t, "GET", "/")
	is.Equal(resp.StatusCode, http.StatusUnauthorized)
}

func TestTheTemplateOfPortsNamesAHostForEach(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for template, ok := range map[string]bool{
		"https://{port}.ports.example.org": true, "http://{port}.localhost:8090": true, "https://{port}.example.org/": true,
		"": false, "https://ports.example.org": false, "https://x-{port}.example.org": false, "https://example.org/{port}": false, "https://{port}.": false,
		"ftp://{port}.example.org": false, "https://{port}.example.org/x": false, "https://{port}.{port}.example.org": false, "{port}.example.org": false,
	} {
		is.Equal(ports.CheckPortsURL(template) == nil, ok) // template
	}
}
