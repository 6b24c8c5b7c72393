package web_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/web/webtest"
)

// An empty list would mean that there is nothing, and clients would believe it.
func TestNothingIsListedWhileTheReadModelsAreComputed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.Admin)
	s.Web.API.Loading = func() error { return projections.Loading{Done: 12, Total: 34} }
	early := []string{"/api/health", "/api/openapi.json", "/api/collections/chats/auth-methods"}
	for _, o := range operations(s.Web.Document()) {
		path, w := o.at("chats"), httptest.NewRecorder()
		r := webtest.Request(o.method, path, "")
		r.Header.Set("Authorization", token)
		s.Config.Handler.ServeHTTP(w, r)
		if slices.Contains(early, path) {
			is.True(w.Code != http.StatusServiceUnavailable)
			continue
		}
		is.Equal(o.ID+" "+http.StatusText(w.Code), o.ID+" Service Unavailable")
		is.Equal(w.Header().Get("Retry-After"), "2")
		expect.Contains(t, w.Body.String(), "12 of 34 events")
	}
}
