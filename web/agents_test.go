package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/agent"
	"pocketcoder/ops/expect"
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
	_, agent := s.Call(t, root, "GET", webtest.RecordsPath("ai_agents")+"/"+done["record"].(string), nil)
	is.Equal(agent["name"], "Reviewer")

	file["text"], file["base"] = "---\nname: Reviewer\n---\nBe long.\n", "another"
	status, _ = send(root)
	is.True(status >= 400)
	file["text"], file["base"] = "---\nname: Reviewer\npermission: {bash: maybe}\n---\n", nil
	status, _ = send(root)
	is.Equal(status, http.StatusBadRequest)
}

// Each account of the staff reads notes and their versions. Only administrators change them.
func TestVersionsOfANoteAreReadAndRestored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", "user")
	_, bot := s.User(t, "bot", "agent")
	_, root := s.User(t, "root", "admin")
	_, reviewer := s.Call(t, root, "POST", webtest.RecordsPath("ai_agents"), webtest.Object{"name": "Reviewer"})
	written := webtest.Object{"agent": reviewer["id"], "name": "plan", "content": "one"}
	status, made := s.Call(t, root, "POST", webtest.RecordsPath("agent_notes"), written)
	is.Equal(status, http.StatusOK)
	at := webtest.RecordsPath("agent_notes") + "/" + made["id"].(string)
	status, _ = s.Call(t, root, "PATCH", at, webtest.Object{"name": "other"})
	is.Equal(status, http.StatusBadRequest)
	status, _ = s.Call(t, root, "PATCH", at, webtest.Object{"content": "two"})
	is.Equal(status, http.StatusOK)

	versions := "/api/agents/Reviewer/notes/plan/versions"
	status, _ = s.Call(t, ann, "GET", versions, nil)
	is.Equal(status, http.StatusForbidden)
	var list []agent.NoteVersion
	status, body := s.Raw(t, bot, "GET", versions, nil)
	is.NoErr(json.Unmarshal(body, &list))
	is.Equal([]any{status, len(list)}, []any{http.StatusOK, 2})
	first := versions + "/" + fmt.Sprint(list[1].Version)
	_, content := s.Call(t, bot, "GET", first, nil)
	is.Equal(content["content"], "one")
	status, _ = s.Call(t, bot, "POST", first+"/restore", nil)
	is.Equal(status, http.StatusForbidden)
	status, _ = s.Call(t, root, "POST", first+"/restore", nil)
	is.Equal(status, http.StatusNoContent)
	_, now := s.Call(t, root, "GET", at, nil)
	is.Equal(now["content"], "one")
}
