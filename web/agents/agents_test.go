package agents_test

import (
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/webtest"
)

func TestAnAdministratorImportsAnAgent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", "user")
	_, root := s.User(t, "root", "admin")
	file := webtest.Object{"text": "---\nname: Reviewer\npermission:\n  edit: deny\n---\nBe brief.\n", "check": true}
	send := func(token string) (int, map[string]any) { return s.Call(t, token, "POST", "/api/agents/import", file) }
	status, _ := send(ann)
	is.Equal(status, http.StatusForbidden)
	status, checked := send(root)
	is.Equal(status, http.StatusOK)
	expect.Contains(t, checked["diff"].(string), "+  edit: deny")
	delete(file, "check")
	status, done := send(root)
	is.Equal([]any{status, done["new"]}, []any{http.StatusOK, true})
	_, agent := s.Call(t, root, "GET", webtest.RecordsOf("ai_agents")+"/"+done["record"].(string), nil)
	is.Equal(agent["name"], "Reviewer")

	file["text"], file["base"] = "---\nname: Reviewer\n---\nBe long.\n", "another"
	status, _ = send(root)
	is.True(status >= 400)
	file["text"], file["base"] = "---\nname: Reviewer\npermission: {bash: maybe}\n---\n", nil
	status, _ = send(root)
	is.Equal(status, http.StatusBadRequest)
}
