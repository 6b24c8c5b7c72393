package push_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"pocketcoder/events"
)

// request is a received HTTP request.
type request struct {
	method, path string
	header       http.Header
	body         string
}

// receiver is a push service. It stores the requests and answers with answer. Its URL has a unique path, because its
// port may have been that of an earlier receiver which still gets requests.
type receiver struct {
	*httptest.Server
	URL    string
	path   string
	mu     sync.Mutex
	got    []request
	answer func(w http.ResponseWriter, r *http.Request)
}

func newReceiver(t testing.TB, answer func(w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	r := &receiver{answer: answer, path: "/" + events.NewID()}
	r.Server = httptest.NewServer(r)
	r.URL = r.Server.URL + r.path
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	path, isOurs := strings.CutPrefix(in.URL.RequestURI(), r.path)
	if !isOurs {
		http.NotFound(w, in)
		return
	}
	body, _ := io.ReadAll(in.Body)
	r.mu.Lock()
	r.got = append(r.got, request{in.Method, path, in.Header, string(body)})
	r.mu.Unlock()
	if r.answer != nil {
		r.answer(w, in)
	}
}

func (r *receiver) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.got...)
}

// awaitRequest waits for the nth request, from 0.
func (s *system) awaitRequest(r *receiver, n int) request {
	s.t.Helper()
	s.eventually("the receiver is told", func() bool { return len(r.requests()) > n })
	return r.requests()[n]
}

// buttons returns the URLs of a notification's buttons, by their labels.
func buttons(t testing.TB, r request) map[string]string {
	t.Helper()
	all := map[string]string{}
	for one := range strings.SplitSeq(r.header.Get("Actions"), "; ") {
		if one == "" {
			continue
		}
		f := strings.Split(one, ", ")
		if len(f) != 5 || f[0] != "http" || f[3] != "method=POST" || f[4] != "clear=true" {
			t.Fatalf("not a button of ntfy's: %q", one)
		}
		all[f[1]] = f[2]
	}
	return all
}

// token returns the token of a button.
func token(t testing.TB, address string) string {
	t.Helper()
	token, ok := strings.CutPrefix(address, baseURL+"/api/pocketcoder/act/")
	if !ok {
		t.Fatalf("not the address of a button: %q", address)
	}
	return token
}
