package web_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// echo answers with what arrived inside.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "host": r.Host, "path": r.URL.EscapedPath(), "query": r.URL.RawQuery, "header": r.Header, "body": string(body),
	})
}

// portRequest does a request without following redirects.
func portRequest(s *webtest.System, t testing.TB, method, path string, header http.Header,
	body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	webtest.Check(t, err)
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	webtest.Check(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	webtest.Check(t, err)
	return resp, string(answer)
}

// opened gives the path of a port of a chat.
func opened(s *webtest.System, t testing.TB, token, chat string, port int) string {
	t.Helper()
	status, answer := s.Call(t, token, "POST", fmt.Sprintf("/api/chats/%s/ports/%d", chat, port), nil)
	if status != http.StatusOK {
		t.Fatalf("open port: %d %v", status, answer)
	}
	return answer["path"].(string)
}

func TestPortIsServedAndNothingOfOursGoesInside(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	chat := s.Chat(t, owner, "mine")
	port := s.Serve(t, chat, http.HandlerFunc(echo))
	plain := fmt.Sprintf("/api/chats/%s/ports/%d/", chat, port)
	ticket := opened(s, t, owner, chat, port)
	for _, c := range []struct{ method, rest, path, body string }{
		{"GET", "", "/", ""},
		{"GET", "a%20b/c%2Fd?x=1&y=%2F", "/a%20b/c%2Fd", ""},
		{"POST", "form", "/form", "a=b"},
		{"PUT", "x", "/x", strings.Repeat("x", 1<<20)},
		{"PATCH", "x/", "/x/", "p"},
		{"DELETE", "x", "/x", ""},
		{"OPTIONS", "x", "/x", ""},
		{"PROPFIND", "x", "/x", ""},
	} {
		for prefix, header := range map[string]http.Header{
			plain:  {"Authorization": {owner}},
			ticket: {"Authorization": {"Bearer app"}}, // the page's own, or ours: it is not told from the other
		} {
			is := is.New(t)
			for name, value := range map[string]string{
				"Cookie": "session=ours", "Referer": "http://ours/" + ticket, "Origin": "null", "X-Own": "kept", "Proxy-Authorization": "Basic x",
				"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1", "X-Forwarded-Host": "ours",
			} {
				header.Set(name, value)
			}
			resp, body := portRequest(s, t, c.method, prefix+c.rest, header, c.body)
			is.Equal(resp.StatusCode, http.StatusOK)
			var got struct {
				Method, Host, Path, Query, Body string
				Header                          http.Header
			}
			is.NoErr(json.Unmarshal([]byte(body), &got))
			is.Equal([]string{got.Method, got.Host, got.Path, got.Body},
				[]string{c.method, fmt.Sprint("localhost:", port), c.path, c.body})
			_, query, _ := strings.Cut(c.rest, "?")
			is.Equal(got.Query, query)
			for _, name := range []string{"Authorization", "Cookie", "Referer", "Proxy-Authorization", "X-Forwarded-For",
				"Forwarded", "X-Forwarded-Host"} {
				is.Equal(got.Header.Values(name), nil) // stays outside
			}
			is.Equal(got.Header.Get("X-Own"), "kept")
			is.Equal(got.Header.Get("Origin"), fmt.Sprint("http://localhost:", port))
			is.Equal(got.Header.Get("X-Forwarded-Prefix"), strings.TrimSuffix(prefix, "/"))
		}
	}
}

func TestWhatAPortAnswersCannotTouchOurOrigin(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	chat := s.Chat(t, owner, "mine")
	hostile := http.Header{
		"Set-Cookie": {"session=theirs; Path=/"}, "Clear-Site-Data": {`"*"`}, "Strict-Transport-Security": {"max-age=9"}, "Alt-Svc": {`h2="evil:1"`},
		"Service-Worker-Allowed": {"/"}, "Access-Control-Allow-Origin": {"https://evil.example"}, "Access-Control-Allow-Credentials": {"true"},
		"Www-Authenticate": {"Basic"}, "X-Accel-Redirect": {"/etc/passwd"}, "X-Sendfile": {"/etc/passwd"}, "Referrer-Policy": {"unsafe-url"},
		"Report-To": {"{}"}, "Nel": {"{}"}, "Refresh": {"0;url=/"},
	}
	port := s.Serve(t, chat, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "early=1")
		w.WriteHeader(http.StatusEarlyHints)
		for name, values := range hostile {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Security-Policy", "script-src 'none'")
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Cache-Control", "public, max-age=99999")
		io.WriteString(w, "<script>1</script>")
	}))
	ticket := opened(s, t, owner, chat, port)
	for path, ticketed := range map[string]bool{ticket: true, fmt.Sprintf("/api/chats/%s/ports/%d/", chat, port): false} {
		is := is.New(t)
		resp, body := portRequest(s, t, "GET", path, http.Header{"Authorization": {owner}}, "")
		is.Equal(body, "<script>1</script>")
		h := resp.Header
		for name := range hostile {
			if name != "Referrer-Policy" && (name != "Access-Control-Allow-Origin" || !ticketed) {
				is.Equal(h.Values(name), nil) // a header for the whole origin
			}
		}
		policies := h.Values("Content-Security-Policy")
		is.Equal(len(policies), 2)
		is.True(strings.HasPrefix(policies[0], "sandbox allow-scripts allow-forms"))
		is.True(!strings.Contains(policies[0], "allow-same-origin") && !strings.Contains(policies[0], "allow-top-navigation"))
		is.Equal(policies[1], "script-src 'none'") // its own is as strict as it likes
		is.Equal([]string{h.Get("Referrer-Policy"), h.Get("X-Content-Type-Options"), h.Get("Cache-Control")},
			[]string{"no-referrer", "nosniff", "no-store"})
		want := ""
		if ticketed {
			want = "*"
		}
		is.Equal(h.Get("Access-Control-Allow-Origin"), want)
	}
	is := is.New(t)
	resp, _ := portRequest(s, t, "OPTIONS", ticket, http.Header{
		"Origin": {"null"}, "Access-Control-Request-Method": {"PUT"},
		"Access-Control-Request-Headers": {"x-own"}}, "")
	is.Equal(resp.StatusCode, http.StatusNoContent)
	is.Equal([]string{resp.Header.Get("Access-Control-Allow-Origin"), resp.Header.Get("Access-Control-Allow-Headers")},
		[]string{"*", "x-own"})
	resp, _ = portRequest(s, t, "OPTIONS", ticket, http.Header{
		"Origin": {"null"}, "Access-Control-Request-Method": {"DELETE"},
	}, "")
	is.Equal(resp.StatusCode, http.StatusNoContent)
	expect.Contains(t, resp.Header.Get("Access-Control-Allow-Methods"), "DELETE")
}

func TestWhatOurServerSaysOfEveryAnswerIsSaidOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	chat := s.Chat(t, owner, "mine")
	port := s.Serve(t, chat, http.HandlerFunc(echo))
	for _, at := range []int{port, 1} { // where nothing serves, too
		outer := httptest.NewRecorder()
		outer.Header().Set("X-Content-Type-Options", "nosniff")
		outer.Header().Set("Referrer-Policy", "no-referrer")
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("/api/chats/%s/ports/%d/", chat, at),
			nil)
		r.Header.Set("Authorization", owner)
		s.Web.Routes().ServeHTTP(outer, r)
		is.Equal(outer.Code == http.StatusOK, at == port)
		h := outer.Result().Header
		is.Equal(h.Values("X-Content-Type-Options"), []string{"nosniff"})
		is.Equal(h.Values("Referrer-Policy"), []string{"no-referrer"})
		is.Equal(h.Values("Cache-Control"), []string{"no-store"})
	}
}

func TestRedirectsOfAPortStayBelowIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, owner := s.User(t, "ada", account.User)
	chat := s.Chat(t, owner, "mine")
	port := s.Serve(t, chat, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Location"] = []string{r.URL.Query().Get("to")}
		w.WriteHeader(http.StatusFound)
	}))
	ticket := opened(s, t, owner, chat, port)
	for to, want := range map[string]string{
		"/login?x=1#y":                  ticket + "login?x=1#y",
		"next":                          "next",
		ticket + "next?x":               ticket + "next?x", // it goes by X-Forwarded-Prefix
		strings.TrimSuffix(ticket, "/"): strings.TrimSuffix(ticket, "/"),
		strings.TrimSuffix(ticket, "/") + "x/y": ticket + strings.TrimPrefix(strings.TrimSuffix(ticket, "/"), "/") +
			"x/y",
		fmt.Sprintf("http://localhost:%d/a", port):   ticket + "a",
		fmt.Sprintf("http://127.0.0.1:%d", port):     ticket,
		"https://example.org/":                       "https://example.org/",
		"//example.org/x":                            "//example.org/x",
		fmt.Sprintf("http://localhost:%d/a", port+1): fmt.Sprintf("http://localhost:%d/a", port+1),
	} {
		resp, _ := portRequest(s, t, "GET", ticket+"?to="+url.QueryEscape(to), nil, "")
		is.Equal(resp.Header.Get("Location"), want)
	}
}
