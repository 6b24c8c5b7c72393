package web_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

func TestOnlyAdministratorsReadTheDetailsOfHealth(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.Web.API.Health = func() api.Health { return api.Health{"b": {State: api.Ready, Detail: "where it runs"}} }
	_, user := s.User(t, "ada", "user")
	_, admin := s.User(t, "root", "admin")
	for token, sees := range map[string]bool{"": false, user: false, admin: true} {
		_, body := s.Call(t, token, "GET", "/api/health", nil)
		_, has := body["data"].(map[string]any)["b"].(map[string]any)["detail"]
		is.Equal(has, sees)
	}
}
