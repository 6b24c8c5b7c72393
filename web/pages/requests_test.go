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

func TestAnAdministratorApprovesTheMCPServerThatThePageShows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, admin := s.User(t, "root", "admin")
	s.User(t, "ada", "user")
	_, made := s.Call(t, admin, "POST", webtest.RecordsPath("mcp_servers"), webtest.Object{"name": "lab",
		"status": "pending", "command": "lab --stdio", "reason": "to measure\x1b[2K",
		"hosts": []string{"api.example.org"}})
	id := made["id"].(string)
	at := webtest.RecordsPath("mcp_servers") + "/" + id
	expect.Contains(t, loggedIn(t, s, "ada").visit(t, "/requests").body, "Nothing waits for you.")

	b := loggedIn(t, s, "root")
	page := b.visit(t, "/requests").body
	for _, want := range []string{"Run the MCP server lab", "lab --stdio", "api.example.org",
		`to measure<b class="hidden">␛</b>[2K`,
		`<b class="count">1</b>`} {
		expect.Contains(t, page, want)
	}
	settings := formOf(t, b.visit(t, "/settings/mcp_servers").body, "/settings/mcp_servers/"+id)
	form := formOf(t, page, "/servers/"+id)
	form.Set("decision", "authorized")
	status, _ := s.Call(t, admin, "PATCH", at, webtest.Object{"hosts": []string{"*.example.org"}}) // meanwhile
	is.Equal(status, http.StatusOK)
	expect.Contains(t, b.submit(t, "/servers/"+id, form).body, "has changed since it was shown")
	settings.Set("status", "approved")
	expect.Contains(t, b.submit(t, "/settings/mcp_servers/"+id, settings).body, "has changed since it was shown")
	status, answer := s.Call(t, admin, "PATCH", at, webtest.Object{"status": "approved",
		"shown_definition": form.Get("shown_definition")})
	is.Equal(status, http.StatusBadRequest)
	is.Equal(answer["data"].(map[string]any)["shown_definition"].(map[string]any)["code"], "validation_conflict")
	_, now := s.Call(t, admin, "GET", at, nil)
	is.Equal(now["status"], "pending")

	form = formOf(t, b.visit(t, "/requests").body, "/servers/"+id)
	form.Set("decision", "authorized")
	after := b.submit(t, "/servers/"+id, form)
	is.Equal([]any{after.status, after.path}, []any{http.StatusOK, "/requests"})
	expect.Contains(t, after.body, "Nothing waits for you.")
	_, now = s.Call(t, admin, "GET", at, nil)
	is.Equal(now["status"], "approved")
}
