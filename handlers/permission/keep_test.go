package permission_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
)

func TestNoRuleDecidesWhetherACreatedNameIsKept(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	for id, fields := range map[string]string{
		"r1": `{"tool":"keep","pattern":"*","action":"allow","active":true}`,
		"r2": `{"tool":"keep","pattern":"*","action":"deny","active":true}`,
		"r3": `{"tool":"*","pattern":"*","action":"deny","active":true}`,
	} {
		permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", id, fields)
	}
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{By: events.ActorSandbox, Data: events.PermissionRequested{
		Permission: "k1", Type: events.KindKeep, Patterns: []string{".envrc"},
		Metadata: events.MustEncode(events.KeepMetadata{Quarantined: events.Quarantined{Item: "q1", Name: ".envrc"}})}})
	handlerstest.Await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "k1" })
	permissiontest.DeleteRecord(t, g.Handlers, "tool_permissions", "r3") // the pending requests are looked at again
	found, _ := g.Decisions("k1")
	is.Equal(len(found), 0)
	c := allowAlways(permission.ScopeAll)
	c.Permission, c.Pattern = "k1", "*"
	_, _, err := g.Gate.AllowAlways(t.Context(), c)
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	g.Decide("k1", events.Denied)
}
