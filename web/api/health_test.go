package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/web/api"
)

func TestHealthIsOKOnceEveryPartIsReady(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	health := func(h api.Health) (int, map[string]any) {
		s := &api.Server{Health: func() api.Health { return h }}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/health", nil))
		var body map[string]any
		is.NoErr(json.Unmarshal(w.Body.Bytes(), &body))
		return w.Code, body
	}
	code, body := health(api.Health{"a": {State: api.Ready}, "b": {State: api.Starting}})
	is.Equal(code, http.StatusServiceUnavailable)
	is.Equal(body["code"], float64(code)) // as in PocketBase
	code, body = health(api.Health{"a": {State: api.Ready}, "b": {State: api.Degraded, Detail: "x"}})
	is.Equal(code, http.StatusOK)
	is.Equal(body["data"].(map[string]any)["b"], map[string]any{"state": "degraded"})
}
