package web_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

func TestWhyAndAlwaysAreForThoseWhoMayKnow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	_, bob := s.User(t, "bob", account.User)
	_, bot := s.User(t, "bot", account.Agent)
	_, root := s.User(t, "root", account.Admin)
	chat := s.Chat(t, ada, "x")
	at := "/api/pocketcoder/permissions/" + s.AppendCommandRequest(t, chat, "per_1", "touch notes")
	for name, c := range map[string]struct {
		token                           string
		why, propose, all, replay, over int
	}{
		"its owner":        {ada, 200, 200, 403, 200, 403},
		"another user":     {bob, 404, 404, 404, 404, 403},
		"an agent":         {bot, 200, 404, 404, 404, 403},
		"an administrator": {root, 200, 200, 200, 200, 200},
		"guest":            {"", 401, 401, 401, 401, 401},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			status, _ := s.Call(t, c.token, "GET", at+"/why", nil)
			is.Equal(status, c.why)
			status, proposed := s.Call(t, c.token, "GET", at+"/always?pattern=touch*", nil)
			is.Equal(status, c.propose)
			_, beyond := proposed["all"]
			is.Equal(beyond, name == "an administrator") // only administrators see the requests of other accounts
			status, _ = s.Call(t, c.token, "GET", at+"/always?scope=all&pattern=touch*", nil)
			is.Equal(status, c.all)
			status, _ = s.Call(t, c.token, "POST", "/api/pocketcoder/policy/replay",
				webtest.Object{"permission": "bash", "pattern": "touch*", "chat": chat})
			is.Equal(status, c.replay)
			status, _ = s.Call(t, c.token, "POST", "/api/pocketcoder/policy/replay",
				webtest.Object{"permission": "bash", "pattern": "touch*"})
			is.Equal(status, c.over)
		})
	}
	for _, bad := range []webtest.Object{{"scope": "planet"}, {"for": "a while"}, {"for": "-1h"}, {"pattern": "whoami*"},
		{"pattern": "touch \x01"}} {
		status, answer := s.Call(t, ada, "POST", at+"/always", bad)
		is.Equal(status, 400) // bad
		is.True(answer["data"] != nil)
	}
	_, rules := s.Call(t, root, "GET", webtest.RecordsPath("tool_permissions"), nil)
	is.Equal(rules["totalItems"], 0.0) // nothing of it was stored
}

func TestRuleMadeOfARequestIsItsAuthorsAndAllowsIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	id, ada := s.User(t, "ada", account.User)
	chat := s.Chat(t, ada, "x")
	record := s.AppendCommandRequest(t, chat, "per_1", "touch notes")
	status, proposed := s.Call(t, ada, "GET", "/api/pocketcoder/permissions/"+record+"/always", nil)
	is.Equal(status, 200)
	is.Equal(len(proposed["rules"].([]any)), 1)
	is.Equal(proposed["chat"].(webtest.Object)["allowed"], 1.0)
	status, stored := s.Call(t, ada, "POST", "/api/pocketcoder/permissions/"+record+"/always", webtest.Object{"for": "1h"})
	is.Equal(status, 200)
	is.Equal(len(stored["rules"].([]any)), 1)
	_, list := s.Call(t, ada, "GET", webtest.RecordsPath("tool_permissions"), nil)
	rule := list["items"].([]any)[0].(webtest.Object)
	is.Equal([]any{rule["author"], rule["chat"], rule["tool"], rule["action"], rule["active"]},
		[]any{id, chat, "bash", "allow", true})
	is.True(rule["expires_at"] != "" && rule["note"] != "")
	is.Equal(stored["rules"].([]any)[0], "tool_permissions/"+rule["id"].(string))
	_, decided := s.Call(t, ada, "GET", webtest.RecordsPath("permissions")+"/"+record, nil)
	is.Equal([]any{decided["status"], decided["approved_by"]}, []any{"authorized", id})

	status, why := s.Call(t, ada, "GET", "/api/pocketcoder/permissions/"+record+"/why", nil)
	is.Equal(status, 200)
	is.Equal(why["decision"].(webtest.Object)["by"], "ada")
	is.Equal(why["ask"].(webtest.Object)["command"], "touch notes")
}
