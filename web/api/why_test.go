package api_test

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/projections"
)

func TestWhyAndAlwaysAreForThoseWhoMayKnow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ada := s.user(t, "ada", account.User)
	_, bob := s.user(t, "bob", account.User)
	_, bot := s.user(t, "bot", account.Agent)
	_, root := s.user(t, "root", account.Admin)
	chat := s.chat(t, ada, "x")
	at := "/api/pocketcoder/permissions/" + s.askedFor(t, chat, "per_1", "touch notes")
	for name, c := range map[string]struct {
		token                           string
		why, propose, all, replay, over int
	}{
		"its owner":        {ada, 200, 200, 403, 200, 403},
		"somebody else":    {bob, 404, 404, 404, 404, 403},
		"an agent":         {bot, 200, 404, 404, 404, 403},
		"an administrator": {root, 200, 200, 200, 200, 200},
		"nobody":           {"", 401, 401, 401, 401, 401},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			status, _ := s.call(t, c.token, "GET", at+"/why", nil)
			is.Equal(status, c.why)
			status, proposed := s.call(t, c.token, "GET", at+"/always?pattern=touch*", nil)
			is.Equal(status, c.propose)
			_, beyond := proposed["all"]
			is.Equal(beyond, name == "an administrator") // what others asked is not for everybody
			status, _ = s.call(t, c.token, "GET", at+"/always?scope=all&pattern=touch*", nil)
			is.Equal(status, c.all)
			status, _ = s.call(t, c.token, "POST", "/api/pocketcoder/policy/replay", object{"permission": "bash", "pattern": "touch*", "chat": chat})
			is.Equal(status, c.replay)
			status, _ = s.call(t, c.token, "POST", "/api/pocketcoder/policy/replay", object{"permission": "bash", "pattern": "touch*"})
			is.Equal(status, c.over)
		})
	}
	for _, bad := range []object{{"scope": "planet"}, {"for": "a while"}, {"for": "-1h"}, {"pattern": "whoami*"}, {"pattern": "touch \x01"}} {
		status, answer := s.call(t, ada, "POST", at+"/always", bad)
		is.Equal(status, 400) // bad
		is.True(answer["data"] != nil)
	}
	_, rules := s.call(t, root, "GET", recordsOf("tool_permissions"), nil)
	is.Equal(rules["totalItems"], 0.0) // nothing of it was stored
}

// askedFor makes OpenCode ask for a command, and gives the id of the ask's record.
func (s *system) askedFor(t testing.TB, chat, ask, command string) string {
	t.Helper()
	properties, err := json.Marshal(object{
		"id": ask, "sessionID": "ses_" + chat, "permission": "bash", "patterns": []string{command}, "always": []string{command}, "metadata": object{"command": command},
		"tool": object{"messageID": "msg_1", "callID": "call_" + ask},
	})
	check(t, err)
	s.commands.Store("call_"+ask, command)
	s.said(t, chat, "permission.asked", string(properties))
	return projections.RecordID(ask)
}

func TestRuleMadeOfAnAskIsItsAuthorsAndAllowsIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	id, ada := s.user(t, "ada", account.User)
	chat := s.chat(t, ada, "x")
	record := s.askedFor(t, chat, "per_1", "touch notes")
	status, proposed := s.call(t, ada, "GET", "/api/pocketcoder/permissions/"+record+"/always", nil)
	is.Equal(status, 200)
	is.Equal(len(proposed["rules"].([]any)), 1)
	is.Equal(proposed["chat"].(object)["allowed"], 1.0)
	status, stored := s.call(t, ada, "POST", "/api/pocketcoder/permissions/"+record+"/always", object{"for": "1h"})
	is.Equal(status, 200)
	is.Equal(len(stored["rules"].([]any)), 1)
	_, list := s.call(t, ada, "GET", recordsOf("tool_permissions"), nil)
	rule := list["items"].([]any)[0].(object)
	is.Equal([]any{rule["author"], rule["chat"], rule["tool"], rule["action"], rule["active"]}, []any{id, chat, "bash", "allow", true})
	is.True(rule["expires_at"] != "" && rule["note"] != "")
	is.Equal(stored["rules"].([]any)[0], "tool_permissions/"+rule["id"].(string))
	_, decided := s.call(t, ada, "GET", recordsOf("permissions")+"/"+record, nil)
	is.Equal([]any{decided["status"], decided["approved_by"]}, []any{"authorized", id})

	status, why := s.call(t, ada, "GET", "/api/pocketcoder/permissions/"+record+"/why", nil)
	is.Equal(status, 200)
	is.Equal(why["decision"].(object)["by"], "ada")
	is.Equal(why["ask"].(object)["command"], "touch notes")
}
