package pages_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// browser visits pages as a browser without script does: it keeps cookies and follows redirects.
type browser struct {
	*webtest.System
	http.Client
	url string
}

// shown is a page that was answered.
type shown struct {
	status int
	path   string // of the page, after redirects
	header http.Header
	body   string
}

func newBrowser(t testing.TB, s *webtest.System) *browser {
	t.Helper()
	server := httptest.NewServer(s.Web.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	jar, err := cookiejar.New(nil)
	webtest.Check(t, err)
	return &browser{s, http.Client{Jar: jar}, server.URL}
}

// loggedIn returns a browser in which an account has logged in on the login page.
func loggedIn(t testing.TB, s *webtest.System, name string) *browser {
	t.Helper()
	b := newBrowser(t, s)
	in := b.submit(t, "/login", url.Values{"email": {name + "@example.org"}, "password": {webtest.Password}})
	if in.status != http.StatusOK || in.path != "/" {
		t.Fatalf("log in: %d %s", in.status, in.path)
	}
	return b
}

func (b *browser) visit(t testing.TB, path string) shown { return b.do(t, "GET", path, nil) }

// submit sends a form as a browser does, with the origin of the page.
func (b *browser) submit(t testing.TB, path string, form url.Values) shown {
	t.Helper()
	return b.do(t, "POST", path, strings.NewReader(form.Encode()))
}

func (b *browser) do(t testing.TB, method, path string, body io.Reader) shown {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, body)
	webtest.Check(t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.url)
	}
	resp, err := b.Client.Do(r)
	webtest.Check(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	webtest.Check(t, err)
	return shown{resp.StatusCode, resp.Request.URL.RequestURI(), resp.Header, string(text)}
}

func TestAGuestLogsInAndGetsThePageTheyWanted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.Chat(t, token, "Tidy up")
	b := newBrowser(t, s)
	login := b.visit(t, "/?x=1")
	is.Equal(login.path, "/login?next=%2F%3Fx%3D1")
	expect.Contains(t, login.body, `name="next" value="/?x=1"`)

	form := url.Values{"email": {"ada@example.org"}, "password": {"wrong"}, "next": {"/?x=1"}}
	failed := b.submit(t, "/login", form)
	is.Equal(failed.status, http.StatusUnprocessableEntity)
	expect.Contains(t, failed.body, "The email or the password is wrong.")
	expect.Contains(t, failed.body, `value="ada@example.org"`)
	is.Equal(b.visit(t, "/").path, "/login?next=%2F")

	form.Set("password", webtest.Password)
	in := b.submit(t, "/login", form)
	is.Equal([]any{in.status, in.path}, []any{http.StatusOK, "/?x=1"})
	expect.Contains(t, in.body, "Tidy up")
	is.Equal(b.visit(t, "/login").path, "/") // a browser that is logged in needs no form
}

func TestTheCookieOfALoginIsOutOfReachOfScriptsAndOtherSites(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.User(t, "ada", "user")
	for _, proxied := range []bool{false, true} {
		s.Web.API.Proxied = proxied
		r := httptest.NewRequest("POST", "/login", strings.NewReader(url.Values{"email": {"ada@example.org"},
			"password": {webtest.Password}}.Encode()))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		s.Web.Handler().ServeHTTP(w, r)
		is.Equal(w.Code, http.StatusSeeOther)
		set := w.Header().Get("Set-Cookie")
		for _, attribute := range []string{"Path=/", "HttpOnly", "SameSite=Lax", "Expires="} {
			expect.Contains(t, set, attribute)
		}
		expect.Lacks(t, set, "Domain")
		is.Equal(strings.HasPrefix(set, "__Host-pocketcoder-"), proxied)
		is.Equal(strings.Contains(set, "; Secure"), proxied)
	}
}

func TestTwoSystemsOnOneHostKeepTheirLogins(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	one, other := webtest.NewSystem(t), webtest.NewSystem(t)
	one.User(t, "ada", "user")
	other.User(t, "ada", "user")
	b := loggedIn(t, one, "ada")
	second := newBrowser(t, other)
	second.Jar = b.Jar // a browser has one set of cookies for all ports of a host
	login := url.Values{"email": {"ada@example.org"}, "password": {webtest.Password}}
	is.Equal(second.submit(t, "/login", login).path, "/")
	is.Equal(b.visit(t, "/").path, "/")
	second.submit(t, "/logout", nil)
	is.Equal(second.visit(t, "/").path, "/login?next=%2F")
	is.Equal(b.visit(t, "/").path, "/")
}

func TestALoginUnderTheFormerNameOfItsCookieCounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := newBrowser(t, s)
	at, err := url.Parse(b.url)
	is.NoErr(err)
	b.Jar.SetCookies(at, []*http.Cookie{{Name: "pocketcoder", Value: token, Path: "/"}})
	is.Equal(b.visit(t, "/").path, "/")
	is.Equal(b.submit(t, "/logout", nil).path, "/login")
	is.Equal(len(b.Jar.Cookies(at)), 0)
}

func TestALoginLeadsToNoOtherSite(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	b := newBrowser(t, s)
	for _, next := range []string{"https://evil.example/x", "//evil.example/x", `/\evil.example`, "///evil.example",
		"javascript:alert(1)", "evil", "%2F%2Fevil.example", "/%09/evil.example\\"} {
		expect.Contains(t, b.visit(t, "/login?next="+url.QueryEscape(next)).body, `name="next" value="/"`)
	}
}

func TestLoggingOutEndsTheSession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	at, err := url.Parse(b.url)
	is.NoErr(err)
	token := b.Jar.Cookies(at)[0].Value
	_, err = s.Accounts.Check(token)
	is.NoErr(err)
	is.Equal(b.submit(t, "/logout", nil).path, "/login")
	is.Equal(len(b.Jar.Cookies(at)), 0)
	_, err = s.Accounts.Check(token)
	is.True(err != nil) // a copy of the cookie is worth nothing
	is.Equal(b.visit(t, "/").path, "/login?next=%2F")
}

func TestAFormOfAnotherSiteIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	for _, path := range []string{"/login", "/logout", "/chats"} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", b.url+path, strings.NewReader("text=hello"))
		is.NoErr(err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "https://evil.example")
		resp, err := b.Client.Do(r)
		is.NoErr(err)
		resp.Body.Close()
		is.Equal(resp.StatusCode, http.StatusForbidden) // path
	}
	is.Equal(b.visit(t, "/").path, "/") // still logged in
}

func TestTheListHasTheChatsOfTheAccountAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	s.User(t, "root", "admin")
	chat := s.Chat(t, ada, "Tidy up")
	s.Chat(t, bob, "Bob's secret")
	s.AppendRequest(t, chat, "per_1")
	of := func(name string) string { return loggedIn(t, s, name).visit(t, "/").body }
	list := of("ada")
	expect.Contains(t, list, `href="/chats/`+chat+`"`)
	expect.Contains(t, list, "Tidy up")
	expect.Lacks(t, list, "secret")
	expect.Lacks(t, of("bob"), "Tidy up")
	all := of("root")
	is.True(strings.Contains(all, "Tidy up") && strings.Contains(all, "secret"))
}

func TestAChatStartsWithItsFirstMessageOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	form := url.Values{"id": {"chat1"}, "message": {"message1"}, "text": {"Rename the file\r\nthen run the tests"}}
	for range 2 { // the second is a repeat of a browser that got no answer
		is.Equal(b.submit(t, "/chats", form).path, "/chats/chat1")
	}
	_, message := s.Call(t, token, "GET", "/api/collections/messages/records/message1", nil)
	is.Equal(message["chat"], "chat1")
	is.Equal(message["parts"], []any{map[string]any{"type": "text", "text": "Rename the file\nthen run the tests"}})
	_, messages := s.Call(t, token, "GET", "/api/collections/messages/records", nil)
	is.Equal(messages["totalItems"], 1.0)
	expect.Contains(t, b.visit(t, "/").body, ">Rename the file</span>")

	refused := b.submit(t, "/chats", url.Values{"id": {"chat2"}, "text": {" \n"}})
	is.Equal(refused.status, http.StatusBadRequest)
	expect.Contains(t, refused.body, "Write a message first.")
}

func TestTheLoginSaysHowAnAccountAndAPasswordAreMade(t *testing.T) {
	t.Parallel()
	page := newBrowser(t, webtest.NewSystem(t)).visit(t, "/login").body
	for _, want := range []string{"<code>pocketcoder user passwd EMAIL</code>", "<code>pocketcoder user add EMAIL</code>",
		"creates the first account"} {
		expect.Contains(t, page, want)
	}
}

func TestAPageAboutAProblemHasTheFrame(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	needed(t, s, s.ChatWithAnswer(t, token), "per_1", "make all")
	guest, ada := newBrowser(t, s), loggedIn(t, s, "ada")
	for _, path := range []string{"/nothing", "/chats/nothing", "/settings/nothing", "/requests/nothing", "/logout"} {
		page := ada.visit(t, path)
		is.Equal(page.status, http.StatusNotFound)
		expect.Contains(t, page.body, "ada@example.org")
		expect.Contains(t, page.body, `<b class="count">1</b>`)
		expect.Contains(t, page.body, "This page does not exist, or you may not see it.")
	}
	page := guest.visit(t, "/nothing")
	is.Equal(page.status, http.StatusNotFound)
	expect.Contains(t, page.body, `<nav><a href="/login">Log in</a></nav>`)
	expect.Lacks(t, page.body, "/logout")
}
