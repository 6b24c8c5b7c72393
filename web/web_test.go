package web_test

import (
	"encoding/json"
	"fmt"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web"
	"pocketcoder/web/api"
)

func TestMain(m *testing.M) { expect.Run(m) }

// server serves the pages, and of the API what needs no other part.
func server() *web.Server {
	health := func() api.Health { return api.Health{"log": {State: api.Ready}} }
	return web.New(web.Options{Health: health, Hosts: []string{"code.example.org"}, Accounts: &account.Accounts{}})
}

// visit does a request on localhost with the given headers, Host among them.
func visit(method, path string, headers map[string]string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	r.Host = "localhost:8090"
	for name, value := range headers {
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	handler().ServeHTTP(w, r)
	return w
}

var handler = sync.OnceValue(func() http.Handler { return server().Handler() })

// requests are all of the API, as method and path, and the pages.
func requests() (list [][2]string) {
	list = [][2]string{{"GET", "/"}, {"GET", "/login"}, {"POST", "/login"}, {"POST", "/logout"}, {"POST", "/chats"},
		{"GET", "/setup"}, {"GET", "/requests/per_1"}, {"GET", "/docs"}, {"GET", "/static/app.css"}}
	paths := server().Document().Paths
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range slices.Sorted(maps.Keys(paths[path])) {
			list = append(list, [2]string{strings.ToUpper(method), strings.NewReplacer("{", "", "}", "").Replace(path)})
		}
	}
	return list
}

// problem is PocketBase's error object.
func problem(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	is := is.New(t)
	var body struct {
		Status  int
		Message string
		Data    map[string]any
	}
	is.NoErr(json.Unmarshal(w.Body.Bytes(), &body))
	is.Equal(body.Status, w.Code)
	is.True(body.Message != "")
	is.True(body.Data != nil)
}

func TestForeignHostIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for host, want := range map[string]int{
		"evil.example": 421, "0.0.0.0:8090": 421, "[::]:8090": 421, "localhost.:8090": 421, "localhost.evil.com:8090": 421,
		"127.0.0.1.evil.example": 421, "10.0.0.1": 421, "169.254.169.254": 421, "2130706433:8090": 421, "localhost:1@evil.com": 421, "": 421,
		"code.example.org.": 421, "x.code.example.org": 421,
		"[::1]:8090": 200, "[::1]": 200, "127.0.0.1": 200, "127.0.0.1:8090": 200, "localhost": 200, "code.example.org": 200,
	} {
		w := visit("GET", "/api/health", map[string]string{"Host": host})
		is.Equal(w.Code, want) // host
	}
	for _, o := range requests() {
		w := visit(o[0], o[1], map[string]string{"Host": "evil.example"})
		is.Equal(w.Code, http.StatusMisdirectedRequest) // whatever is asked for
		problem(t, w)
	}
}

func TestTheHostOfAPortServesThatPortAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := server()
	s.Ports.URL = "https://{port}.code.example.org"
	for host, want := range map[string]int{
		// no account exists yet, and the API refuses everything too
		"3000-0123456789abcdef.code.example.org": 401, "3000-0123456789ABCDEF.code.example.org:443": 401,
		"code.example.org": 200, "evil.code.example.org": 421, "3000-0123456789abcdef.code.example.org.evil.example": 421,
		"3000-0123456789abcdef.evil.example": 421, "3000-0123456789abcdef.localhost": 421, "x.3000-0123456789abcdef.code.example.org": 421,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/api/health", nil)
		r.Host = host
		s.Handler().ServeHTTP(w, r)
		is.Equal(w.Code, want) // host
	}
}

func TestForeignOriginIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, o := range requests() {
		for _, origin := range []string{
			"http://localhost.evil.com", "http://localhost:1@evil.com", "null", "https://x.opencode.ai", "http://0.0.0.0:8090",
			"http://[::]:8090",
			"http://localhost.:8090", "http://localhost", "http://localhost:80901", "http://127.0.0.1:8090", "file://",
			"HTTP://EVIL.COM", "*", "",
		} {
			w := visit(o[0], o[1], map[string]string{"Origin": origin})
			is.Equal(w.Code, http.StatusForbidden) // reading included
			is.Equal(w.Header().Get("Access-Control-Allow-Origin"), "")
			problem(t, w)
		}
		if o[0] != http.MethodGet {
			w := visit(o[0], o[1], map[string]string{"Sec-Fetch-Site": "cross-site"})
			is.Equal(w.Code, http.StatusForbidden) // a change that another site asks for without Origin
			problem(t, w)
		}
	}
	is.Equal(visit("GET", "/api/health", map[string]string{"Origin": "http://localhost:8090"}).Code, http.StatusOK)
	is.Equal(visit("GET", "/api/health", map[string]string{"Origin": "https://code.example.org",
		"Host": "code.example.org"}).Code, http.StatusOK)
}

func TestEveryAnswerTellsBrowsersToBeCareful(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, path := range []string{"/", "/login", "/setup", "/requests/per_1", "/docs", "/static/setup.js", "/api/health",
		"/api/nothing", "/nothing"} {
		is.Equal(visit("GET", path, nil).Header().Get("X-Content-Type-Options"), "nosniff") // path
	}
	for _, path := range []string{"/static/setup.js", "/api/health", "/api/nothing"} {
		is.Equal(visit("GET", path, nil).Header().Get("Referrer-Policy"), "no-referrer") // path
	}
	for path, status := range map[string]int{"/login": http.StatusOK, "/setup": http.StatusOK, "/docs": http.StatusOK,
		"/nothing": http.StatusNotFound} {
		w := visit("GET", path, nil)
		is.Equal(w.Code, status)
		// with no-referrer, Chromium sends "Origin: null" with a form
		is.Equal(w.Header().Get("Referrer-Policy"), "same-origin")
		policy := w.Header().Get("Content-Security-Policy")
		for _, directive := range []string{
			"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "manifest-src 'self'",
			"form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
			"require-trusted-types-for 'script'", "trusted-types pocketcoder",
		} {
			is.True(slices.Contains(strings.Split(policy, "; "), directive)) // directive
		}
		// which the policy forbids
		is.True(!strings.Contains(w.Body.String(), "<style") && !strings.Contains(w.Body.String(), "style="))
	}
	expect.Contains(t, visit("GET", "/api/health", nil).Header().Get("Content-Security-Policy"), "sandbox")
}

func TestThePageOfTheAPIShowsEveryOperationAndForm(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	page := visit("GET", "/docs", nil).Body.String()
	d := server().Document()
	for path, methods := range d.Paths {
		for method, o := range methods {
			expect.Contains(t, page, `id="`+o.ID+`"`)                      // the operation
			expect.Contains(t, page, strings.ToUpper(method)+" "+path+"<") // under its method and path
		}
	}
	for name := range d.Components.Schemas {
		expect.Contains(t, page, `id="form-`+name+`"`) // the form
	}
	for _, tag := range d.Tags {
		_, section, _ := strings.Cut(page, `<section id="`+tag.Name+`"`)
		section, _, _ = strings.Cut(section, "</section>")
		is.True(strings.Contains(section, "<pre>curl ") || strings.Contains(section, "\ncurl ")) // an example of every group
		is.Equal(strings.Count(section, "<details>"), strings.Count(section, "<article"))        // each operation is folded
	}
	for _, link := range strings.Split(page, `href="#`)[1:] {
		id, _, _ := strings.Cut(link, `"`)
		expect.Contains(t, page, `id="`+id+`"`) // no link leads nowhere
	}
}

func TestUnchangedFilesAreNotSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := visit("GET", "/static/app.css", nil)
	is.Equal(w.Code, http.StatusOK)
	is.Equal(w.Header().Get("Cache-Control"), "no-cache")
	is.Equal(visit("GET", "/static/app.css", map[string]string{"If-None-Match": w.Header().Get("ETag")}).Code,
		http.StatusNotModified)
	for _, path := range []string{"/static/", "/static/..%2fweb.go", "/static/none.css"} {
		is.Equal(visit("GET", path, nil).Code, http.StatusNotFound) // path
	}
}

func TestPathsOfTheAPIThatAreNotCleanAreNotFound(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, path := range []string{"/api/./health", "/api//health", "/api/x/../health"} {
		w := visit("GET", path, nil)
		is.Equal(w.Code, http.StatusNotFound) // path
		problem(t, w)
	}
}

func TestTheAppCanBeInstalled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, rest, _ := strings.Cut(visit("GET", "/login", nil).Body.String(), `<link rel="manifest" href="`)
	path, _, _ := strings.Cut(rest, `"`)
	w := visit("GET", path, nil)
	is.Equal(w.Code, http.StatusOK)
	is.Equal(w.Header().Get("Content-Type"), "application/manifest+json")
	var manifest struct {
		StartURL string `json:"start_url"`
		Display  string
		Icons    []struct{ Src, Sizes, Type string }
	}
	is.NoErr(json.Unmarshal(w.Body.Bytes(), &manifest))
	is.Equal([]string{manifest.StartURL, manifest.Display}, []string{"/", "standalone"})
	is.True(len(manifest.Icons) > 0)
	for _, icon := range manifest.Icons {
		w := visit("GET", icon.Src, nil)
		is.Equal([]any{w.Code, w.Header().Get("Content-Type")}, []any{http.StatusOK, icon.Type}) // icon
		if icon.Type != "image/png" {
			continue
		}
		size, err := png.DecodeConfig(w.Body)
		is.NoErr(err)
		is.Equal(icon.Sizes, fmt.Sprintf("%dx%d", size.Width, size.Height))
	}
}
