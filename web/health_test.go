package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/web"
)

func get(t *testing.T, h web.Health, host string) (int, map[string]any) {
	t.Helper()
	s := &web.Server{Health: func() web.Health { return h }, Hosts: []string{"code.example.org"}}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/api/health", nil)
	r.Host = host
	s.Handler().ServeHTTP(w, r)
	var body map[string]any
	is.New(t).NoErr(json.Unmarshal(w.Body.Bytes(), &body))
	return w.Code, body
}

func TestHealthIsOKOnceEveryPartIsReady(t *testing.T) {
	is := is.New(t)
	code, _ := get(t, web.Health{"a": {State: web.Ready}, "b": {State: web.Starting}}, "127.0.0.1:8090")
	is.Equal(code, http.StatusServiceUnavailable)
	code, body := get(t, web.Health{"a": {State: web.Ready}, "b": {State: web.Degraded, Detail: "x"}}, "localhost:8090")
	is.Equal(code, http.StatusOK)
	is.Equal(body["data"].(map[string]any)["b"], map[string]any{"state": "degraded", "detail": "x"})
}

func TestForeignHostIsRefused(t *testing.T) {
	is := is.New(t)
	for host, want := range map[string]int{
		"evil.example": 421, "0.0.0.0:8090": 421, "localhost.:8090": 421, "127.0.0.1.evil.example": 421, "10.0.0.1": 421,
		"[::1]:8090": 200, "127.0.0.1": 200, "code.example.org": 200,
	} {
		code, _ := get(t, web.Health{}, host)
		is.Equal(code, want) // host
	}
}
