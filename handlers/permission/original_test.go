package permission_test

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
)

// kept passes the originals of requests to the gate, and appends the requests.
func kept(t *testing.T, g *permissiontest.RunningGate, requests ...handlerstest.Fact) {
	t.Helper()
	for _, f := range requests {
		var a events.PermissionRequest
		is.New(t).NoErr(json.Unmarshal(f.Data.(events.OpenCode).Properties, &a))
		g.Gate.Permissions.KeepOriginal(a)
	}
	handlerstest.Happened(t, g.Log, "c1", requests...)
}

func TestADenyRuleAppliesToARequestThatTheLogConceals(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "all",
		`{"tool":"edit","pattern":"*","action":"allow","active":true}`)
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "archive",
		`{"tool":"edit","pattern":"private/archive01/**","action":"deny","active":true}`)
	g.Log.Conceal(secret.System, "token", "private/archive01", "archive-of-2024")
	edit := func(id, file string) handlerstest.Fact {
		return handlerstest.Permission(id, "ses_1", "call_"+id, "edit", []string{file},
			map[string]string{"filepath": g.Directory + "/" + file, "diff": "+x"})
	}
	kept(t, g, edit("per_1", "private/archive01/a.txt"), edit("per_2", "archive-of-2024.txt"))
	handlerstest.Happened(t, g.Log, "c1", edit("per_3", "private/archive01/a.txt"), edit("per_4", "archive-of-2024.txt"))
	g.AwaitIdle()

	denied, _ := g.Decisions("per_1")
	is.Equal(len(denied), 1)
	is.Equal(denied[0].Decision, events.Denied) // by the rule about the bytes that OpenCode would write
	is.Equal(denied[0].Rule, "deny edit: [redacted]/**")
	allowed, _ := g.Decisions("per_2")
	is.Equal(len(allowed), 1)
	is.Equal(allowed[0].Decision, events.Authorized) // every byte is known
	for _, id := range []string{"per_3", "per_4"} {  // the original is not at hand, as after a restart
		found, _ := g.Decisions(id)
		is.Equal(len(found), 0)
		is.Equal(len(g.Referrals(id)), 1)
	}
}

func TestASecretFileIsAskedForThoughTheLogConcealsItsName(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	g.Log.Conceal(secret.System, "token", g.Directory+"/.env")
	read := handlerstest.Permission("per_1", "ses_1", "call_1", "read", []string{g.Directory + "/.env"},
		map[string]string{})
	kept(t, g, read)
	g.AwaitIdle()
	found, _ := g.Decisions("per_1")
	is.True(len(found) == 0 || found[0].Decision == events.Denied) // no rule allows it
}

func TestAnApprovalOfAConcealedRequestIsNotUsedForAnother(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	g.Log.Conceal(secret.System, "token", "first-secret-of-two", "second-secret-of-two")
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Permission("per_1", "ses_1", "call_1", "webfetch",
		[]string{"https://example.org/first-secret-of-two"}, map[string]string{}),
		handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_1"}})
	g.AwaitIdle()
	g.Decide("per_1", events.Authorized)
	kept(t, g, handlerstest.Permission("per_2", "ses_1", "call_2", "webfetch",
		[]string{"https://example.org/second-secret-of-two"}, map[string]string{}))
	g.AwaitIdle()
	found, _ := g.Decisions("per_2")
	is.Equal(len(found), 0) // both are stored alike
}
