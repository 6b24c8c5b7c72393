package web_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

// The read models do not run yet, so that they are behind the log for good.
func TestTheLatestStateIsNotAwaitedWithoutALimit(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	webtest.NewSystem(t, func(s *webtest.System) {
		s.NewAccount(t, "ada", account.User)
		in, err := s.Accounts.Login(t.Context(), account.Login{Identity: "ada@example.org", Password: webtest.Password,
			Collection: account.Users})
		is.NoErr(err)
		_, _, err = s.Chats.Create(t.Context(), chat.Create{Chat: "c1"})
		is.NoErr(err)
		routes := s.Web.Routes()
		for _, c := range []struct {
			path, token string
			status      int
		}{
			{"/api/collections/chats/records", in.Text, http.StatusServiceUnavailable},
			{"/api/health", in.Text, http.StatusOK},
			{"/api/health", "", http.StatusOK},
			{"/api/collections/chats/records", "", http.StatusUnauthorized}, // a guest is not kept waiting
		} {
			w, r := httptest.NewRecorder(), webtest.Request(http.MethodGet, c.path, "")
			r.Header.Set(api.ReadHeader, api.ReadLatest)
			if c.token != "" {
				r.Header.Set("Authorization", c.token)
			}
			routes.ServeHTTP(w, r)
			is.Equal(w.Code, c.status)
			if c.status == http.StatusServiceUnavailable {
				is.Equal(w.Header().Get("Retry-After"), "2")
				expect.Contains(t, w.Body.String(), "behind the log")
			}
		}
	})
}
