package pages_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// shownRule returns the value of the button that saves the rule of a page.
func shownRule(t *testing.T, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `name="shown" value="`)
	if !found {
		t.Fatal("no rule to save in " + page)
	}
	value, _, _ := strings.Cut(rest, `"`)
	return html.UnescapeString(value)
}

// referred makes OpenCode ask for a command that runs where the chat works and that no rule allows. It returns the id
// of the record.
func referred(t *testing.T, s *webtest.System, chat, permission, command string) string {
	t.Helper()
	id := s.AppendCommandRequest(t, chat, permission, command)
	s.Append(t, chat, events.PermissionReferred{Permission: permission, Reason: "no rule allows it"})
	return id
}

func TestARuleIsTriedOnTheHistoryBeforeItIsSaved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	chat := s.Chat(t, token, "Tidy up")
	denied := referred(t, s, chat, "per_1", "touch notes.old")
	b := loggedIn(t, s, "ada")
	shown := shownRequest(b.visit(t, "/requests/"+denied).body)
	b.submit(t, "/chats/"+chat+"/requests/"+denied, url.Values{"decision": {"denied"}, "shown_request": {shown}})
	id := referred(t, s, chat, "per_2", "touch notes")
	expect.Contains(t, b.visit(t, "/requests").body, `href="/requests/`+id+`/always"`)

	page := b.visit(t, "/requests/"+id+"/always").body
	expect.Contains(t, page, "In this chat, the rule would have allowed 1 of the last 2 requests.")
	expect.Lacks(t, page, "In all chats")        // which only administrators see
	expect.Lacks(t, page, `<option value="all"`) // likewise
	wide := b.visit(t, "/requests/"+id+"/always?pattern=touch+*&for=1h").body
	expect.Contains(t, wide, "In this chat, the rule would have allowed 2 of the last 2 requests.")
	expect.Contains(t, wide, `<li class="refused"><code>touch notes.old</code>`)
	expect.Contains(t, wide, "asked once: denied")
	refused := b.visit(t, "/requests/"+id+"/always?pattern=npm+*").body
	expect.Contains(t, refused, "The rule cannot be saved: ")
	expect.Lacks(t, refused, "Save the rule")

	form := url.Values{"pattern": {"touch *"}, "scope": {"chat"}, "for": {"1h"}, "shown": {shownRule(t, wide)}}
	other := maps.Clone(form)
	other.Set("shown", strings.ReplaceAll(shownRule(t, wide), `touch *"`, `touch *.old"`))
	other.Set("pattern", "touch *.old")
	is.Equal(b.submit(t, "/requests/"+id+"/always", other).status, http.StatusBadRequest) // it does not allow the request
	other.Del("shown")
	is.Equal(b.submit(t, "/requests/"+id+"/always", other).status, http.StatusBadRequest)
	is.Equal(loggedIn(t, s, "bob").submit(t, "/requests/"+id+"/always", form).status, http.StatusNotFound)
	after := b.submit(t, "/requests/"+id+"/always", form)
	is.Equal(after.status, http.StatusOK)
	is.True(strings.HasPrefix(after.path, "/chats/"+chat+"?saved=tool_permissions"))
	expect.Contains(t, after.body, "The rule is saved: <code>bash: touch *</code> until <time")
	expect.Contains(t, after.body, "approved by ada@example.org")
	third := referred(t, s, chat, "per_3", "touch other")
	expect.Contains(t, b.visit(t, "/requests/"+third+"/always").body, "of the last") // the page of a rule that exists
}

func TestARuleThatWasEditedIsTriedBeforeItIsSaved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	id := referred(t, s, chat, "per_1", "touch notes")
	b := loggedIn(t, s, "ada")
	shown := shownRule(t, b.visit(t, "/requests/"+id+"/always").body)
	for _, edited := range []url.Values{
		{"pattern": {"touch n*"}, "scope": {"chat"}, "for": {""}},
		{"pattern": {"touch notes"}, "scope": {"chat"}, "for": {"1h"}},
	} {
		tried := "/requests/" + id + "/always?" + edited.Encode()
		edited.Set("shown", shown)
		page := b.submit(t, "/requests/"+id+"/always", edited)
		is.Equal([]any{page.status, page.path}, []any{http.StatusOK, tried})
		expect.Contains(t, page.body, `value="`+edited.Get("pattern")+`"`)
		_, rules := s.Call(t, token, "GET", webtest.RecordsPath("tool_permissions"), nil)
		is.Equal(rules["totalItems"], 0.0)
		expect.Contains(t, b.visit(t, "/requests/"+id).body, "waits for you")
	}
	page := b.submit(t, "/requests/"+id+"/always",
		url.Values{"pattern": {"touch notes"}, "scope": {"chat"}, "for": {""}, "shown": {shown}})
	expect.Contains(t, page.body, "approved by ada@example.org")
}

func TestRequestsForTheSameAreDecidedTogether(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	one, two := s.Chat(t, token, "one"), s.Chat(t, token, "two")
	ids := []string{needed(t, s, one, "per_1", "make all"), needed(t, s, two, "per_2", "make all")}
	needed(t, s, one, "per_3", "make other")
	b := loggedIn(t, s, "ada")
	page := b.visit(t, "/requests").body
	expect.Contains(t, page, "2 identical requests")
	files := []string{"", ""}
	form := url.Values{"request": ids, "shown_files": files, "shown_request": {shownRequest(page)},
		"decision": {"authorized"}}
	other := url.Values{"request": ids, "shown_files": files, "shown_request": {"0000"}, "decision": {"authorized"}}
	is.Equal(b.submit(t, "/requests", other).status, http.StatusBadRequest)
	after := b.submit(t, "/requests", form)
	is.Equal(after.path, "/requests")
	expect.Lacks(t, after.body, "make all")
	expect.Contains(t, after.body, "make other")
	for _, id := range ids {
		expect.Contains(t, b.visit(t, "/requests/"+id).body, "approved by ada@example.org")
	}
}

func TestAnEditedCommandIsComparedWithTheOneThatWasAskedFor(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	id := needed(t, s, chat, "per_1", "cd /tmp\nrm -rf *")
	b := loggedIn(t, s, "ada")
	shown := shownRequest(b.visit(t, "/requests/"+id).body)
	page := b.submit(t, "/chats/"+chat+"/requests/"+id, url.Values{"decision": {"authorized"},
		"edited": {"cd /tmp\nls <b>"}, "from": {"request"}, "shown_request": {shown}}).body
	expect.Contains(t, page, `<span class="removed">-rm -rf *`)
	expect.Contains(t, page, `<span class="added">+ls &lt;b&gt;`)
	expect.Contains(t, page, `<span class=""> cd /tmp`)
}

func TestTheCardOfAHostOffersARule(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Install")
	request := func(permission, address string) {
		s.Append(t, chat, events.PermissionRequested{Permission: permission, Type: "network", Patterns: []string{address},
			Metadata: []byte(`{"command":"npm install"}`), Session: "ses_" + chat, Message: "The command: npm install"})
		s.Append(t, chat, events.PermissionReferred{Permission: permission, Reason: "no rule allows it"})
	}
	const id = "per_2"
	request("per_1", "api.example.com:443")
	request(id, "api.example.com:443")
	b := loggedIn(t, s, "ada")
	expect.Contains(t, b.visit(t, "/requests").body, `href="/requests/`+id+`/always">Always allow this host…</a>`)
	page := b.visit(t, "/requests/"+id+"/always").body
	expect.Contains(t, page, "network: api.example.com</pre>")
	expect.Contains(t, page, "In this chat, the rule would have allowed 2 of the last 2 requests.")
	after := b.submit(t, "/requests/"+id+"/always", url.Values{"pattern": {"api.example.com"}, "scope": {"chat"},
		"for": {""}, "shown": {shownRule(t, page)}})
	expect.Contains(t, after.body, "The rule is saved: <code>network: api.example.com</code>")
	expect.Contains(t, after.body, "approved by ada@example.org")

	_, rules := s.Call(t, token, "GET", webtest.RecordsPath("tool_permissions"), nil)
	is.Equal(rules["totalItems"], 1.0)
	rule := rules["items"].([]any)[0].(map[string]any)
	is.Equal([]any{rule["tool"], rule["pattern"], rule["chat"]}, []any{"network", "api.example.com", chat})
	status, _ := s.Call(t, token, "DELETE", webtest.RecordsPath("tool_permissions")+"/"+rule["id"].(string), nil)
	is.Equal(status, http.StatusNoContent)
}

func TestTheCardOfACommandWithoutANetworkOffersAHost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	chat := s.Chat(t, token, "Install")
	ids := map[string]string{}
	commands := map[string]string{"per_1": "curl -sS https://api.example.com:8443/a", "per_2": "npm install"}
	for permission, command := range commands {
		ids[permission] = s.AppendCommandRequest(t, chat, permission, command)
		s.Append(t, chat, events.PermissionReferred{Permission: permission, Reason: "no rule allows it", Cwd: s.Workspace,
			Network: "The command has no network."})
	}
	b := loggedIn(t, s, "ada")
	expect.Contains(t, b.visit(t, "/requests/"+ids["per_1"]).body, `name="host" value="api.example.com:8443"`)
	expect.Contains(t, b.visit(t, "/requests/"+ids["per_2"]).body, `name="host" value=""`)
	expect.Lacks(t, b.visit(t, "/requests/"+referred(t, s, chat, "per_3", "make")).body, `name="host"`)

	at := "/requests/" + ids["per_2"] + "/host"
	host := url.Values{"host": {"api.example.com"}}
	is.Equal(loggedIn(t, s, "bob").submit(t, at, host).status, http.StatusNotFound)
	is.Equal(b.submit(t, at, url.Values{"host": {"no host"}}).status, http.StatusBadRequest)
	after := b.submit(t, at, host)
	is.True(strings.HasPrefix(after.path, "/chats/"+chat+"?saved="))
	expect.Contains(t, after.body, "The rule is saved: <code>network: api.example.com</code>")
	expect.Contains(t, b.visit(t, "/requests/"+ids["per_2"]).body, "waits for you")
	_, rules := s.Call(t, token, "GET", webtest.RecordsPath("tool_permissions"), nil)
	is.Equal(rules["totalItems"], 1.0)
	rule := rules["items"].([]any)[0].(map[string]any)
	is.Equal([]any{rule["tool"], rule["pattern"], rule["action"], rule["chat"]},
		[]any{"network", "api.example.com", "allow", chat})
}
