package permission_test

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
	"pocketcoder/ops/expect"
)

// waits is a gate with request per_1 for a command, which waits for a person.
func waits(t testing.TB, command string) *permissiontest.RunningGate {
	t.Helper()
	g := permissiontest.OpenGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", command))
	g.AwaitIdle()
	if len(g.Referrals("per_1")) != 1 {
		t.Fatalf("%q does not wait", command)
	}
	return g
}

func allowAlways(scope string) permission.AllowAlways {
	return permission.AllowAlways{Command: handlers.Command{ID: "cmd1", Actor: handlerstest.Alice}, Chat: "c1",
		Permission: "per_1", Scope: scope, Client: events.Client{Device: "Phone/1"}}
}

func TestAlwaysIsOnlyAboutTheRequestThatWasShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	c := allowAlways(permission.ScopeChat)
	c.ShownRequest.Command = "make test"
	_, err := g.Gate.ProposeAlways(t.Context(), c)
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	_, _, err = g.Gate.AllowAlways(t.Context(), c)
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	found, _ := g.Decisions("per_1")
	is.Equal(len(found), 0) // neither a decision
	_, err = g.Log.Fold(t.Context(), events.ConfigSubject("tool_permissions", "*", "*"), 0, func(e events.Event) error {
		t.Errorf("rule %s", e.Data)
		return nil
	})
	is.NoErr(err) // nor a rule
	c.ShownRequest.Command = "make build"
	_, _, err = g.Gate.AllowAlways(t.Context(), c)
	is.NoErr(err)
}

func TestAlwaysStoresOnlyTheRulesThatWereShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	c := allowAlways(permission.ScopeChat)
	p, err := g.Gate.ProposeAlways(t.Context(), c)
	is.NoErr(err)
	c.ShownRules = []policy.Rule{{Permission: "bash", Pattern: "make clean", Action: policy.Allow}}
	_, _, err = g.Gate.AllowAlways(t.Context(), c)
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	found, _ := g.Decisions("per_1")
	is.Equal(len(found), 0) // neither a decision
	_, err = g.Log.Fold(t.Context(), events.ConfigSubject("tool_permissions", "*", "*"), 0, func(e events.Event) error {
		t.Errorf("rule %s", e.Data)
		return nil
	})
	is.NoErr(err) // nor a rule
	c.ShownRules = p.Rules
	_, _, err = g.Gate.AllowAlways(t.Context(), c)
	is.NoErr(err)
}

func TestAlwaysIsProposedThenStoredWithTheDecision(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_2", "make build"))
	g.AwaitIdle()
	before, err := g.Log.Last(t.Context())
	is.NoErr(err)
	p, err := g.Gate.ProposeAlways(t.Context(), allowAlways(permission.ScopeChat))
	is.NoErr(err)
	is.Equal(len(p.Rules), 1)
	is.Equal(p.Rules[0].Permission, "bash")
	is.Equal([]int{p.Chat.Allowed, p.All.Allowed}, []int{2, 2})
	last, err := g.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, before) // nothing is decided, nothing stored

	ids, seq, err := g.Gate.AllowAlways(t.Context(), allowAlways(permission.ScopeChat))
	is.NoErr(err)
	is.Equal(len(ids), 1)
	rule := g.Record(ids[0])
	is.Equal([]any{rule["tool"], rule["pattern"], rule["action"], rule["active"]},
		[]any{"bash", p.Rules[0].Pattern, "allow", true})
	is.Equal([]any{rule["chat"], rule["agent"], rule["author"], rule["expires_at"]}, []any{"c1", "", "alice", ""})
	expect.Contains(t, rule["note"].(string), "per_1")
	found, by := g.Decisions("per_1")
	is.Equal(len(found), 1)
	is.Equal(by, []string{handlerstest.Alice}) // by the person; what else waits for the same, by the policy
	is.Equal(found[0].Client.Device, "Phone/1")
	is.Equal(found[0].Cwd, g.Directory)
	_, other := handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "per_2" })
	is.Equal(other.RuleID, ids[0])

	same, again, err := g.Gate.AllowAlways(t.Context(), allowAlways(permission.ScopeChat)) // the same command
	is.NoErr(err)
	is.Equal(same, ids)
	is.True(again <= seq)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_3", "make build"))
	g.AwaitIdle()
	is.Equal(len(g.Referrals("per_3")), 0) // from now on it is silent

	permissiontest.DeleteRecord(t, g.Handlers, "tool_permissions", strings.TrimPrefix(ids[0], "tool_permissions/"))
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_4", "make build"))
	g.AwaitIdle()
	is.Equal(len(g.Referrals("per_4")), 1) // and when it is revoked, asked
}

func TestAlwaysIsStoredOnceAndLastsTheLongest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	allow := func(command, lasts string) (id string) {
		t.Helper()
		c := allowAlways(permission.ScopeAll)
		c.ID, c.For = command, lasts
		ids, _, err := g.Gate.AllowAlways(t.Context(), c)
		is.NoErr(err)
		is.Equal(len(ids), 1)
		return ids[0]
	}
	hour := allow("cmd1", "1h")
	until := g.Record(hour)["expires_at"].(string)
	at, err := time.Parse("2006-01-02 15:04:05.000Z", until)
	is.NoErr(err)
	is.True(time.Until(at) > 59*time.Minute)
	is.Equal(allow("cmd2", "1m"), hour)
	is.Equal(g.Record(hour)["expires_at"], until) // it lasts longer already
	is.Equal(allow("cmd3", ""), hour)
	is.Equal(g.Record(hour)["expires_at"], "")
	is.Equal(allow("cmd4", "1h"), hour)
	is.Equal(g.Record(hour)["expires_at"], "")
	is.Equal(len(permissiontest.InForce(t, g.Handlers, rule.Scope{At: time.Now()})), 1)
}

func TestAlwaysForAnAgent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	_, _, err := g.Gate.AllowAlways(t.Context(), allowAlways(permission.ScopeAgent))
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid) // no agent has that name
	permissiontest.SaveRecord(t, g.Handlers, "ai_agents", "a1", `{"name":"build"}`)
	ids, _, err := g.Gate.AllowAlways(t.Context(), allowAlways(permission.ScopeAgent))
	is.NoErr(err)
	is.Equal([]any{g.Record(ids[0])["agent"], g.Record(ids[0])["chat"]}, []any{"a1", ""})
	is.Equal(len(permissiontest.InForce(t, g.Handlers, rule.Scope{Chat: "c9", Agent: "build"})), 1)
	is.Equal(len(permissiontest.InForce(t, g.Handlers, rule.Scope{Chat: "c1", Agent: "plan"})), 0)
}

func TestAlwaysThatWouldNotAllowIsRefused(t *testing.T) {
	t.Parallel()
	g := waits(t, "make build")
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"rm*","action":"deny","active":true}`)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_2", "make $(id)"),
		handlerstest.Permission("per_3", "ses_1", "call_3", "edit", []string{".git/config"},
			map[string]string{"filepath": g.Directory + "/.git/config"}))
	g.AwaitIdle()
	before, err := g.Log.Last(t.Context())
	is.New(t).NoErr(err)
	for name, c := range map[string]struct {
		change func(*permission.AllowAlways)
		code   handlers.Code
		want   string
	}{
		"another pattern":     {func(c *permission.AllowAlways) { c.Pattern = "go test*" }, handlers.Invalid, "would not allow this"},
		"a pattern unread":    {func(c *permission.AllowAlways) { c.Pattern = "make && rm*" }, handlers.Invalid, "column"},
		"no sensible pattern": {func(c *permission.AllowAlways) { c.Permission = "per_2" }, handlers.Invalid, "no rule to propose"},
		"a protected file":    {func(c *permission.AllowAlways) { c.Permission, c.Pattern = "per_3", "**" }, handlers.Invalid, "would not allow this"},
		"no such ask":         {func(c *permission.AllowAlways) { c.Permission = "per_9" }, handlers.NotFound, "no permission request per_9"},
		"no such chat":        {func(c *permission.AllowAlways) { c.Chat = "c9" }, handlers.NotFound, "no permission request"},
		"every chat":          {func(c *permission.AllowAlways) { c.Chat = "*" }, handlers.Invalid, "chat: parse id"},
		"no scope":            {func(c *permission.AllowAlways) { c.Scope = "" }, handlers.Invalid, "scope: want"},
		"no time":             {func(c *permission.AllowAlways) { c.For = "soon" }, handlers.Invalid, "such as 30m"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			asked := allowAlways(permission.ScopeAll)
			c.change(&asked)
			_, err := g.Gate.ProposeAlways(t.Context(), asked)
			is.Equal(handlerstest.Refusal(t, err), c.code)
			expect.Contains(t, err.Error(), c.want)
			_, _, err = g.Gate.AllowAlways(t.Context(), asked)
			is.Equal(handlerstest.Refusal(t, err), c.code)
		})
	}
	last, err := g.Log.Last(t.Context())
	is.New(t).NoErr(err)
	is.New(t).Equal(last, before)
}

func TestAlwaysForWhatIsSettledStoresTheRuleAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	g.Decide("per_1", events.Denied)
	ids, _, err := g.Gate.AllowAlways(t.Context(), allowAlways(permission.ScopeChat))
	is.NoErr(err)
	is.Equal(len(ids), 1)
	found, _ := g.Decisions("per_1")
	is.Equal(len(found), 1)
	is.Equal(found[0].Decision, events.Denied)
}

func TestBudgetIsExceededByNoRule(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "r1",
		`{"tool":"budget","pattern":"*","action":"allow","active":true}`)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Fact{By: events.ActorPolicy,
		Data: events.PermissionRequested{Permission: "b1", Type: events.KindBudget, Patterns: []string{"daily"}}})
	handlerstest.Await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "b1" })
	found, _ := g.Decisions("b1")
	is.Equal(len(found), 0)
	c := allowAlways(permission.ScopeAll)
	c.Permission, c.Pattern = "b1", "*"
	_, _, err := g.Gate.AllowAlways(t.Context(), c)
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	expect.Contains(t, err.Error(), "budget")
}
