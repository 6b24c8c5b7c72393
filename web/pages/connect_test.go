package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestAPersonTypesTheCodeOfAProgram(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.NewAccount(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	_, begun := s.Call(t, "", "POST", "/api/pocketcoder/logins", nil)
	code, secret := begun["code"].(string), begun["secret"].(string)
	is.True(!strings.Contains(begun["page"].(string), code)) // the person types it
	confirm := `<button name="confirm" value="yes">`

	linked := b.visit(t, "/connect?code="+code) // an attacker has sent this link
	expect.Lacks(t, linked.body, code)
	expect.Lacks(t, linked.body, confirm)
	wrong := b.submit(t, "/connect", url.Values{"code": {"BBBB-BBBB"}})
	expect.Contains(t, wrong.body, "This code is wrong")
	expect.Lacks(t, wrong.body, confirm)

	typed := b.submit(t, "/connect", url.Values{"code": {strings.ToLower(code)}})
	expect.Contains(t, typed.body, confirm)
	expect.Contains(t, typed.body, "A program at the address <b>127.0.0.1</b>")
	expect.Contains(t, typed.body, "The program calls itself <q>Go-http-client")
	poll := func() map[string]any {
		_, answer := s.Call(t, "", "POST", "/api/pocketcoder/logins/"+code+"/token", map[string]any{"secret": secret})
		return answer
	}
	is.Equal(poll()["pending"], true) // typing alone confirms nothing
	done := b.submit(t, "/connect", url.Values{"code": {code}, "confirm": {"yes"}})
	expect.Contains(t, done.body, "The program acts for ada@example.org now")
	is.Equal(poll()["email"], "ada@example.org")
}

func TestAProgramMayNotAskWithoutALimit(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	status := 0
	for tries := 0; status != http.StatusTooManyRequests && tries < 1000; tries++ {
		status, _ = s.Call(t, "", "POST", "/api/pocketcoder/logins/BCDF-GHJK/token", map[string]any{"secret": "s"})
	}
	is.Equal(status, http.StatusTooManyRequests)
}
