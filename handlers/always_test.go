package handlers

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers/policy"
)

// waits is a gate with ask per_1 for a command, which waits for a person.
func waits(t testing.TB, command string) *gate {
	t.Helper()
	g := openGate(t)
	happened(t, g.Log, "c1", askBash("per_1", command))
	g.looked()
	if len(g.referrals("per_1")) != 1 {
		t.Fatalf("%q does not wait", command)
	}
	return g
}

func allowAlways(scope string) AlwaysPermission {
	return AlwaysPermission{Command: Command{ID: "cmd1", Actor: alice}, Chat: "c1", Permission: "per_1", Scope: scope, Client: events.Client{Device: "Phone/1"}}
}

// kept is the fields of a rule.
func (g *gate) kept(id string) (r map[string]any) {
	g.t.Helper()
	is := is.New(g.t)
	collection, record, _ := strings.Cut(id, "/")
	_, err := g.Log.Fold(g.t.Context(), events.ConfigSubject(collection, record, "*"), 0, func(e events.Event) error {
		var d events.Saved
		r = nil
		is.NoErr(json.Unmarshal(e.Data, &d))
		return json.Unmarshal(d.Fields, &r)
	})
	is.NoErr(err)
	return r
}

func TestAlwaysIsOnlyAboutTheRequestThatWasShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	c := allowAlways(ScopeChat)
	c.Shown.Command = "make test"
	_, err := g.Gate.ProposeAlways(t.Context(), c)
	is.Equal(refusal(t, err), Conflict)
	_, _, err = g.Gate.AllowAlways(t.Context(), c)
	is.Equal(refusal(t, err), Conflict)
	found, _ := g.decisions("per_1")
	is.Equal(len(found), 0) // neither a decision
	_, err = g.Log.Fold(t.Context(), events.ConfigSubject(toolPermissions, "*", "*"), 0, func(e events.Event) error { t.Errorf("rule %s", e.Data); return nil })
	is.NoErr(err) // nor a rule
	c.Shown.Command = "make build"
	_, _, err = g.Gate.AllowAlways(t.Context(), c)
	is.NoErr(err)
}

func TestAlwaysStoresOnlyTheRulesThatWereShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	c := allowAlways(ScopeChat)
	p, err := g.Gate.ProposeAlways(t.Context(), c)
	is.NoErr(err)
	c.ShownRules = []policy.Rule{{Permission: "bash", Pattern: "make clean", Action: policy.Allow}}
	_, _, err = g.Gate.AllowAlways(t.Context(), c)
	is.Equal(refusal(t, err), Conflict)
	found, _ := g.decisions("per_1")
	is.Equal(len(found), 0) // neither a decision
	_, err = g.Log.Fold(t.Context(), events.ConfigSubject(toolPermissions, "*", "*"), 0, func(e events.Event) error { t.Errorf("rule %s", e.Data); return nil })
	is.NoErr(err) // nor a rule
	c.ShownRules = p.Rules
	_, _, err = g.Gate.AllowAlways(t.Context(), c)
	is.NoErr(err)
}

func TestAlwaysIsProposedThenStoredWithTheDecision(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	happened(t, g.Log, "c1", askBash("per_2", "make build"))
	g.looked()
	before, err := g.Log.Last(t.Context())
	is.NoErr(err)
	p, err := g.Gate.ProposeAlways(t.Context(), allowAlways(ScopeChat))
	is.NoErr(err)
	is.Equal(len(p.Rules), 1)
	is.Equal(p.Rules[0].Permission, "bash")
	is.Equal([]int{p.Chat.Allowed, p.All.Allowed}, []int{2, 2})
	last, err := g.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, before) // nothing is decided, nothing stored

	ids, seq, err := g.Gate.AllowAlways(t.Context(), allowAlways(ScopeChat))
	is.NoErr(err)
	is.Equal(len(ids), 1)
	rule := g.kept(ids[0])
	is.Equal([]any{rule["tool"], rule["pattern"], rule["action"], rule["active"]}, []any{"bash", p.Rules[0].Pattern, "allow", true})
	is.Equal([]any{rule["chat"], rule["agent"], rule["author"], rule["expires_at"]}, []any{"c1", "", "alice", ""})
	expect.Contains(t, rule["note"].(string), "per_1")
	found, by := g.decisions("per_1")
	is.Equal(len(found), 1)
	is.Equal(by, []string{alice}) // by the person; what else waits for the same, by the policy
	is.Equal(found[0].Client.Device, "Phone/1")
	is.Equal(found[0].Cwd, g.directory)
	_, other := await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "per_2" })
	is.Equal(other.RuleID, ids[0])

	same, again, err := g.Gate.AllowAlways(t.Context(), allowAlways(ScopeChat)) // the same command
	is.NoErr(err)
	is.Equal(same, ids)
	is.True(again <= seq)
	happened(t, g.Log, "c1", askBash("per_3", "make build"))
	g.looked()
	is.Equal(len(g.referrals("per_3")), 0) // from now on it is silent

	drops(t, g.Handlers, toolPermissions, strings.TrimPrefix(ids[0], toolPermissions+"/"))
	happened(t, g.Log, "c1", askBash("per_4", "make build"))
	g.looked()
	is.Equal(len(g.referrals("per_4")), 1) // and when it is revoked, asked
}

func TestAlwaysIsStoredOnceAndLastsTheLongest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	allow := func(command, lasts string) (id string) {
		t.Helper()
		c := allowAlways(ScopeAll)
		c.ID, c.For = command, lasts
		ids, _, err := g.Gate.AllowAlways(t.Context(), c)
		is.NoErr(err)
		is.Equal(len(ids), 1)
		return ids[0]
	}
	hour := allow("cmd1", "1h")
	until := g.kept(hour)["expires_at"].(string)
	at, err := parseDate(until)
	is.NoErr(err)
	is.True(time.Until(at) > 59*time.Minute)
	is.Equal(allow("cmd2", "1m"), hour)
	is.Equal(g.kept(hour)["expires_at"], until) // it lasts longer already
	is.Equal(allow("cmd3", ""), hour)
	is.Equal(g.kept(hour)["expires_at"], "")
	is.Equal(allow("cmd4", "1h"), hour)
	is.Equal(g.kept(hour)["expires_at"], "")
	is.Equal(len(inForce(t, g.Handlers, RuleScope{At: time.Now()})), 1)
}

func TestAlwaysForAnAgent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := waits(t, "make build")
	_, _, err := g.Gate.AllowAlways(t.Context(), allowAlways(ScopeAgent))
	is.Equal(refusal(t, err), Invalid) // nobody keeps an agent of that name
	keeps(t, g.Handlers, "ai_agents", "a1", `{"name":"build"}`)
	ids, _, err := g.Gate.AllowAlways(t.Context(), allowAlways(ScopeAgent))
	is.NoErr(err)
	is.Equal([]any{g.kept(ids[0])["agent"], g.kept(ids[0])["chat"]}, []any{"a1", ""})
	is.Equal(len(inForce(t, g.Handlers, RuleScope{Chat: "c9", Agent: "build"})), 1)
	is.Equal(len(inForce(t, g.Handlers, RuleScope{Chat: "c1", Agent: "plan"})), 0)
}

func TestAlwaysThatWouldNotAllowIsRefused(t *testing.T) {
	t.Parallel()
	g := waits(t, "make build")
	keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"bash","pattern":"rm*","action":"deny","active":true}`)
	happened(t, g.Log, "c1", askBash("per_2", "make $(id)"), asks("per_3", "ses_1", "call_3", "edit", []string{".git/config"}, map[string]string{"filepath": g.directory + "/.git/config"}))
	g.looked()
	before, err := g.Log.Last(t.Context())
	is.New(t).NoErr(err)
	for name, c := range map[string]struct {
		change func(*AlwaysPermission)
		code   Code
		says   string
	}{
		"another pattern":     {func(c *AlwaysPermission) { c.Pattern = "go test*" }, Invalid, "would not allow this"},
		"a pattern unread":    {func(c *AlwaysPermission) { c.Pattern = "make && rm*" }, Invalid, "column"},
		"no sensible pattern": {func(c *AlwaysPermission) { c.Permission = "per_2" }, Invalid, "no rule to propose"},
		"a protected file":    {func(c *AlwaysPermission) { c.Permission, c.Pattern = "per_3", "**" }, Invalid, "would not allow this"},
		"no such ask":         {func(c *AlwaysPermission) { c.Permission = "per_9" }, NotFound, "no permission ask per_9"},
		"no such chat":        {func(c *AlwaysPermission) { c.Chat = "c9" }, NotFound, "no permission ask"},
		"every chat":          {func(c *AlwaysPermission) { c.Chat = "*" }, Invalid, "chat: parse id"},
		"no scope":            {func(c *AlwaysPermission) { c.Scope = "" }, Invalid, "scope: want"},
		"no time":             {func(c *AlwaysPermission) { c.For = "soon" }, Invalid, "such as 30m"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			asked := allowAlways(ScopeAll)
			c.change(&asked)
			_, err := g.Gate.ProposeAlways(t.Context(), asked)
			is.Equal(refusal(t, err), c.code)
			expect.Contains(t, err.Error(), c.says)
			_, _, err = g.Gate.AllowAlways(t.Context(), asked)
			is.Equal(refusal(t, err), c.code)
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
	g.decide("per_1", events.Denied)
	ids, _, err := g.Gate.AllowAlways(t.Context(), allowAlways(ScopeChat))
	is.NoErr(err)
	is.Equal(len(ids), 1)
	found, _ := g.decisions("per_1")
	is.Equal(len(found), 1)
	is.Equal(found[0].Decision, events.Denied)
}

func TestBudgetIsExceededByNoRule(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	keeps(t, g.Handlers, toolPermissions, "r1", `{"tool":"budget","pattern":"*","action":"allow","active":true}`)
	happened(t, g.Log, "c1", fact{by: events.ActorPolicy, data: events.PermissionRequested{Permission: "b1", Type: BudgetAsk, Patterns: []string{"daily"}}})
	await(t, g.Log, func(d events.PermissionReferred) bool { return d.Permission == "b1" })
	found, _ := g.decisions("b1")
	is.Equal(len(found), 0)
	c := allowAlways(ScopeAll)
	c.Permission, c.Pattern = "b1", "*"
	_, _, err := g.Gate.AllowAlways(t.Context(), c)
	is.Equal(refusal(t, err), Invalid)
	expect.Contains(t, err.Error(), "budget")
}
