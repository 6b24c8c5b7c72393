package handlers_test

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
)

func TestRuleIsActiveUnlessItsAuthorSaysOtherwise(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	save := func(collection, fields string) string {
		var set map[string]json.RawMessage
		is.NoErr(json.Unmarshal([]byte(fields), &set))
		id, _, err := h.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
			Collection: collection, New: true, Set: set})
		is.NoErr(err)
		return id
	}
	save("tool_permissions", `{"tool":"bash","pattern":"rm*","action":"deny"}`)
	save("tool_permissions", `{"tool":"bash","pattern":"make*","action":"allow"}`)
	save("whitelist_actions", `{"permission":"write"}`)
	save("whitelist_targets", `{"name":"docs","pattern":"docs/**"}`)
	id := save("tool_permissions", `{"tool":"bash","pattern":"paused*","action":"allow","active":false}`)
	want := []string{"deny bash: rm*", "bash: make*", "write: docs/**"}
	is.Equal(permissiontest.InForce(t, h, rule.Scope{}), want)

	change := func(fields string) {
		var set map[string]json.RawMessage
		is.NoErr(json.Unmarshal([]byte(fields), &set))
		_, _, err := h.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
			Collection: "tool_permissions", Record: id, Set: set})
		is.NoErr(err)
	}
	change(`{"note":"still paused"}`)
	is.Equal(permissiontest.InForce(t, h, rule.Scope{}), want)
	change(`{"active":true}`)
	is.Equal(permissiontest.InForce(t, h, rule.Scope{}), append(want, "bash: paused*"))
}
