package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/agent"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestOnlyAdministratorsSeeTheStateOfTheSystem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "root", "admin")
	s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	s.Assistant(t, chat, "msg_1", `,"providerID":"acme","modelID":"large","cost":0.25,"tokens":{"input":7,"output":5},"time":{"created":1,"completed":2}`)
	is.Equal(loggedIn(t, s, "ada").visit(t, "/operations").status, http.StatusForbidden)
	page := loggedIn(t, s, "root").visit(t, "/operations").body
	for _, want := range []string{"<td>EVENTS</td>", "<b>log</b> <span>ready</span>", "No worker responds", "acme/large",
		"root@example.org", "US$0.25, 12 tokens"} {
		expect.Contains(t, page, want)
	}
}

func TestEveryCollectionOfTheSettingsIsShownAndChanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	s.User(t, "root", "admin")
	s.User(t, "ada", "user")
	root, ada := loggedIn(t, s, "root"), loggedIn(t, s, "ada")
	index := root.visit(t, "/settings").body
	for _, link := range strings.Split(index, `<a href="/settings/`)[1:] {
		name, _, _ := strings.Cut(link, `"`)
		is.Equal(root.visit(t, "/settings/"+name).status, http.StatusOK) // name
	}
	is.Equal(root.visit(t, "/settings/messages").status, http.StatusNotFound)

	saved := root.submit(t, "/settings/ai_prompts", url.Values{"name": {"Review <1>"}, "body": {"Be brief.\r\nBe kind."}})
	is.Equal([]any{saved.status, saved.path}, []any{http.StatusOK, "/settings/ai_prompts"})
	expect.Contains(t, saved.body, "Review &lt;1&gt;")
	expect.Contains(t, saved.body, "Be brief.\nBe kind.</textarea>")
	_, rest, _ := strings.Cut(saved.body, `id="record-`)
	id, _, _ := strings.Cut(rest, `"`)
	expect.Contains(t, root.submit(t, "/settings/ai_prompts/"+id,
		url.Values{"name": {"Review 2"}, "body": {"Be brief.\r\nBe kind."}}).body, "Review 2")
	is.Equal(ada.submit(t, "/settings/ai_prompts/"+id, url.Values{"name": {"mine"}}).status, http.StatusNotFound)
	page := root.submit(t, "/settings/ai_agents", url.Values{"name": {"reviewer"}, "mode": {"primary"},
		"temperature": {"0.5"}, "is_init": {"true"}, "prompt": {id}}).body
	expect.Contains(t, page, `<option value="`+id+`" selected>Review 2</option>`)
	_, rest, _ = strings.Cut(page, `id="record-`)
	agentID, _, _ := strings.Cut(rest, `"`)
	cleared := root.submit(t, "/settings/ai_agents/"+agentID, url.Values{"name": {"reviewer"}, "temperature": {""}})
	is.Equal(cleared.status, http.StatusOK)
	stored, err := agent.One(t.Context(), s.Records, agentID)
	is.NoErr(err)
	is.True(stored.Temperature == nil) // not 0, which is a temperature too
	for _, bad := range []url.Values{{"name": {"x"}, "temperature": {"warm"}}, {"name": {""}},
		{"name": {"x"}, "mode": {"odd"}}} {
		is.Equal(root.submit(t, "/settings/ai_agents", bad).status, http.StatusBadRequest) // bad
	}
	expect.Lacks(t, root.submit(t, "/settings/ai_prompts/"+id+"/delete", url.Values{}).body, "Review 2")
}

func TestASecretOfTheSettingsIsNotOverwrittenByWhatIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "root", "admin")
	b := loggedIn(t, s, "root")
	page := b.submit(t, "/settings/llm_keys", url.Values{"provider_id": {"acme"},
		"env_vars": {"ACME_API_KEY=sk-very-secret"}, "user": {idOf(t, s, token)}})
	is.Equal(page.status, http.StatusOK)
	expect.Contains(t, page.body, "acme")
	expect.Lacks(t, page.body, "sk-very-secret")
	_, form, _ := strings.Cut(page.body, `id="record-`)
	id, form, _ := strings.Cut(form, `"`)
	_, shown, _ := strings.Cut(form, `name="env_vars"`)
	_, shown, _ = strings.Cut(shown, ">")
	shown, _, _ = strings.Cut(shown, "</textarea>")
	last, err := s.Log.Last(t.Context())
	is.NoErr(err)
	same := url.Values{"provider_id": {"acme"}, "env_vars": {strings.TrimPrefix(shown, "\n")}, "user": {idOf(t, s, token)}}
	is.Equal(b.submit(t, "/settings/llm_keys/"+id, same).status, http.StatusOK)
	now, err := s.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(now, last) // nothing was saved
}

// idOf returns the id of the account of a token.
func idOf(t *testing.T, s *webtest.System, token string) string {
	t.Helper()
	identity, err := s.Accounts.Check(token)
	webtest.Check(t, err)
	return identity.Account
}
