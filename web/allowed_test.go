package web_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

// A Problem ends long answers at once. After any other error they go on for ten seconds.
func TestLostRightToAChatIsAProblem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	mine, deleted := s.Chat(t, ada, "mine"), s.Chat(t, ada, "deleted")
	s.Remove(t, ada, deleted)
	for name, c := range map[string]struct {
		token, chat string
		problem     bool
	}{
		"own": {ada, mine, false}, "another's": {bob, mine, true}, "deleted": {ada, deleted, true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		err := s.Web.API.PersonMayWrite(r, s.Web.API.CallerWith(r, c.token), c.chat)
		t.Log(name, err)
		is.Equal(errors.As(err, new(api.Problem)), c.problem)
	}
}
