package webtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// address makes each request come from another one, or the limit on logins would answer instead.
var address atomic.Uint32

// Send serves one request in place, and checks the answer's shape. A stream ends when it has begun.
func Send(s *System, t *testing.T, token string, r *http.Request) (int, []byte) {
	t.Helper()
	n := address.Add(1)
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", n>>16&255, n>>8&255, n&255)
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &startedStream{ResponseRecorder: httptest.NewRecorder(), stop: cancel}
	s.Config.Handler.ServeHTTP(w, r.WithContext(ctx))
	if status := w.Code; status >= 400 {
		var problem struct {
			Status  int
			Message string
			Data    map[string]any
		}
		err := json.Unmarshal(w.Body.Bytes(), &problem)
		if status >= 500 || err != nil || problem.Status != status || problem.Message == "" || problem.Data == nil {
			t.Errorf("%s %.300s: %d %.300s", r.Method, r.URL, status, w.Body)
		}
	}
	return w.Code, w.Body.Bytes()
}

// startedStream ends a stream once it has begun.
type startedStream struct {
	*httptest.ResponseRecorder
	stop func()
}

func (w *startedStream) Flush() {
	w.ResponseRecorder.Flush()
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		w.stop()
	}
}

// Request is a request with a JSON body, "" for none.
func Request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}
