package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/webtest"
)

func TestOnePageHasTheRequestsOfAllChats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	expect.Contains(t, b.visit(t, "/requests").body, "Nothing waits for you.")
	first, second, other := s.Chat(t, ada, "First"), s.Chat(t, ada, "Second"), s.Chat(t, bob, "Other")
	request := needed(t, s, first, "per_1", "make a")
	needed(t, s, second, "per_2", "make b")
	needed(t, s, other, "per_3", "make c")
	s.AppendCommandRequest(t, first, "per_4", "make d") // the policy has not looked at it yet
	s.AppendOpenCode(t, second, "question.asked", `{"id":"que_1","sessionID":"ses_`+second+
		`","questions":[{"question":"Which colour?","header":"Colour","options":[{"label":"Red"}]}]}`)

	page := b.visit(t, "/requests").body
	for _, want := range []string{"make a", "make b", "Which colour?", `href="/chats/` + first + `">First<`,
		`<b class="count">3</b>`} {
		expect.Contains(t, page, want)
	}
	for _, unwanted := range []string{"make c", "make d"} {
		expect.Lacks(t, page, unwanted)
	}
	expect.Contains(t, b.visit(t, "/").body, `<b class="count">3</b>`)

	after := b.submit(t, "/chats/"+first+"/requests/"+request, url.Values{
		"decision": {"denied"}, "from": {"requests"}, "shown_request": {shownRequest(element(t, page, "r-"+request))},
	})
	is.Equal([]any{after.status, after.path}, []any{http.StatusOK, "/requests"})
	is.True(!strings.Contains(after.body, "make a") && strings.Contains(after.body, "make b"))
}
