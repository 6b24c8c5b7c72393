package pages_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"
	"rsc.io/qr"

	"pocketcoder/ops/expect"
	"pocketcoder/web/pages"
	"pocketcoder/web/webtest"
)

func TestALoginIsEndedFromAnotherBrowser(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.User(t, "bob", "user")
	bob := loggedIn(t, s, "bob")
	s.NewAccount(t, "ada", "user")
	one, two := loggedIn(t, s, "ada"), loggedIn(t, s, "ada")
	session := func(b *browser) string {
		at, err := url.Parse(b.url)
		is.NoErr(err)
		identity, err := s.Accounts.Check(b.Jar.Cookies(at)[0].Value)
		is.NoErr(err)
		return identity.Session
	}
	other, foreign := session(two), session(bob)
	page := one.visit(t, "/account")
	is.Equal(page.status, http.StatusOK)
	is.Equal(strings.Count(page.body, `<li id="login-`), 2)
	is.Equal(strings.Count(page.body, ">this browser<"), 1)
	for _, b := range []*browser{one, two} { // the own login is the first
		_, rest, _ := strings.Cut(b.visit(t, "/account").body, `<li id="login-`)
		is.True(strings.HasPrefix(rest, session(b)))
		expect.Contains(t, rest, "Logged in <time")
		expect.Contains(t, rest, "</time> from 127.0.0.1")
	}
	expect.Contains(t, element(t, page.body, "login-"+session(one)), "127.0.0.1")
	expect.Contains(t, page.body, `action="/account/logins/`+other+`/end"`)
	expect.Contains(t, page.body, "works only on this machine")

	after := one.submit(t, "/account/logins/"+other+"/end", nil)
	is.Equal([]any{after.status, after.path}, []any{http.StatusOK, "/account"})
	expect.Lacks(t, after.body, other)
	is.Equal(two.visit(t, "/").path, "/login?next=%2F")
	one.submit(t, "/account/logins/"+foreign+"/end", nil)
	is.Equal(bob.visit(t, "/").path, "/") // the session of another account goes on
	is.Equal(one.submit(t, "/account/logins/"+session(one)+"/end", nil).path, "/login")
}

func TestTheAddressForPhonesIsTheOneThatTheOperatorSet(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.User(t, "ada", "user")
	s.Web.API.URL = "https://code.example.org"
	b := loggedIn(t, s, "ada") // at a loopback address
	account := b.visit(t, "/account")
	expect.Contains(t, account.body, `<a href="https://code.example.org/">https://code.example.org</a>`)
	expect.Lacks(t, account.body, "works only on this machine")
	code, err := qr.Encode("https://code.example.org/", qr.L)
	is.NoErr(err)
	expect.Contains(t, account.body, fmt.Sprintf(`viewBox="-4 -4 %[1]d %[1]d"`, code.Size+8))
	expect.Contains(t, newBrowser(t, s).visit(t, "/setup").body, `<a href="https://code.example.org/setup">`)
	s.Web.API.URL = ""
	expect.Lacks(t, newBrowser(t, s).visit(t, "/setup").body, "Phones and other computers")
}

func TestAPersonLogsOutEverywhere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	one, two, bob := loggedIn(t, s, "ada"), loggedIn(t, s, "ada"), loggedIn(t, s, "bob")
	is.Equal(one.submit(t, "/account/logins/end", nil).path, "/login")
	for _, b := range []*browser{one, two} {
		is.Equal(b.visit(t, "/").path, "/login?next=%2F")
	}
	status, _ := s.Call(t, token, "GET", "/api/pocketcoder/sessions", nil)
	is.Equal(status, http.StatusUnauthorized)
	is.Equal(bob.visit(t, "/").path, "/")
}

func TestALoginIsNamedAfterItsClient(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	s.NewAccount(t, "ada", "user")
	b := newBrowser(t, s)
	for userAgent, want := range map[string]string{
		"Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36":            "Chrome on Android",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile Safari/604.1": "Safari on iPhone",
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                           "Firefox on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0":    "Edge on Windows",
		"curl/8.14 <script>": "curl/8.14 &lt;script&gt;",
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", b.url+"/login",
			strings.NewReader(url.Values{"email": {"ada@example.org"}, "password": {webtest.Password}}.Encode()))
		webtest.Check(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("User-Agent", userAgent)
		resp, err := b.Client.Do(r)
		webtest.Check(t, err)
		resp.Body.Close()
		expect.Contains(t, b.visit(t, "/account").body, ">"+want+"</strong>")
	}
}

func TestAPhoneReadsTheAddressFromTheScreen(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.Web.API.Proxied = true
	mux := http.NewServeMux()
	pages.Handle(mux, s.Web.Site, s.Web.Exports, s.Web.Document())
	r, w := httptest.NewRequest("GET", "/account", nil), httptest.NewRecorder()
	r.Host = "code.example.org"
	r.AddCookie(&http.Cookie{Name: "__Host-pocketcoder", Value: token})
	mux.ServeHTTP(w, r)
	is.Equal(w.Code, http.StatusOK)
	code, err := qr.Encode("https://code.example.org/", qr.L)
	is.NoErr(err)
	_, path, _ := strings.Cut(w.Body.String(), `</path><path d="`)
	path, _, _ = strings.Cut(path, `"`)
	for y := range code.Size {
		for x := range code.Size {
			is.Equal(strings.Contains(path, fmt.Sprintf("M%d %dh1v1h-1z", x, y)), code.Black(x, y))
		}
	}
}
