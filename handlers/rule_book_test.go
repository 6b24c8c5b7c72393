package handlers_test

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

func TestRulesAreForTheirChatAgentAndTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	permissiontest.SaveRecord(t, h, "ai_agents", "a1", `{"name":"build"}`)
	for id, fields := range map[string]string{
		"all":     `{"tool":"bash","pattern":"all","action":"allow","active":true}`,
		"paused":  `{"tool":"bash","pattern":"paused","action":"allow","active":false}`,
		"chat":    `{"tool":"bash","pattern":"chat","action":"allow","active":true,"chat":"c1"}`,
		"agent":   `{"tool":"bash","pattern":"agent","action":"allow","active":true,"agent":"a1"}`,
		"nobody":  `{"tool":"bash","pattern":"nobody","action":"allow","active":true,"agent":"a9"}`,
		"noagent": `{"tool":"bash","pattern":"noagent","action":"deny","active":true,"agent":"a1"}`,
		"hour":    `{"tool":"bash","pattern":"hour","action":"allow","active":true,"expires_at":"2026-01-02 03:00:00.000Z"}`,
		"project": `{"tool":"bash","pattern":"project","action":"deny","active":true,"project":"app"}`,
	} {
		permissiontest.SaveRecord(t, h, "tool_permissions", id, fields)
	}
	at := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, s)
		is.NoErr(err)
		return at
	}
	for name, c := range map[string]struct {
		scope rule.Scope
		has   map[string]bool
	}{
		"in the chat":           {rule.Scope{Chat: "c1", Agent: "build", At: at("2026-01-02T02:59:59.999Z")}, map[string]bool{"all": true, "chat": true, "agent": true, "deny noagent": true, "hour": true}},
		"in another, too late":  {rule.Scope{Chat: "c2", Agent: "build", At: at("2026-01-02T03:00:00Z")}, map[string]bool{"all": true, "agent": true, "deny noagent": true}},
		"of another agent":      {rule.Scope{Chat: "c2", Agent: "plan", At: at("2027-01-02T03:00:00Z")}, map[string]bool{"all": true}},
		"of a subagent":         {rule.Scope{Chat: "c2", Agent: "general", Chosen: "a1", At: at("2027-01-02T03:00:00Z")}, map[string]bool{"all": true, "deny noagent": true}},
		"in the project":        {rule.Scope{Chat: "c2", Project: "app", Agent: "plan", At: at("2027-01-02T03:00:00Z")}, map[string]bool{"all": true, "deny project": true}},
		"in another project":    {rule.Scope{Chat: "c2", Project: "local", Agent: "plan", At: at("2027-01-02T03:00:00Z")}, map[string]bool{"all": true}},
		"of nobody knows which": {rule.Scope{Chat: "c2", At: at("2027-01-02T03:00:00Z")}, map[string]bool{"all": true, "deny noagent": true}},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			found, err := rule.InForce(t.Context(), h.Records, c.scope)
			is.NoErr(err)
			got := map[string]bool{}
			for _, r := range found {
				name := r.Pattern
				if r.Action == policy.Deny {
					name = "deny " + name
				}
				got[name] = true
			}
			is.Equal(got, c.has)
		})
	}
	// its allow rules no longer apply to anything; its deny rules stay
	permissiontest.DeleteRecord(t, h, "ai_agents", "a1")
	is.Equal(len(permissiontest.InForce(t, h, rule.Scope{Agent: "build", At: time.Now()})), 2)
}

func TestRuleNamesItsRecordAndVersionThenAsNow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	one := permissiontest.SaveRecord(t, h, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"make","action":"allow","active":true}`)
	two := permissiontest.SaveRecord(t, h, "tool_permissions", "r1",
		`{"tool":"bash","pattern":"make test","action":"allow","active":true}`)
	rules, err := rule.InForce(t.Context(), h.Records, rule.Scope{At: time.Now()})
	is.NoErr(err)
	is.Equal(rules, []policy.Rule{{Permission: "bash", Pattern: "make test", Action: policy.Allow,
		ID: "tool_permissions/r1", Version: two}})
	permissiontest.DeleteRecord(t, h, "tool_permissions", "r1")
	is.Equal(len(permissiontest.InForce(t, h, rule.Scope{At: time.Now()})), 0)
	rules, err = rule.InForce(t.Context(), h.Records, rule.Scope{At: time.Now(), Seq: one}) // as it was
	is.NoErr(err)
	is.Equal(rules, []policy.Rule{{Permission: "bash", Pattern: "make", Action: policy.Allow, ID: "tool_permissions/r1",
		Version: one}})
	rules, err = rule.InForce(t.Context(), h.Records, rule.Scope{At: time.Now(), Seq: two})
	is.NoErr(err)
	is.Equal(rules[0].Pattern, "make test")
	is.Equal(len(permissiontest.InForce(t, h, rule.Scope{At: time.Now(), Seq: one - 1})), 0)
}

func TestWhitelistIsVerbsAndNouns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	permissiontest.SaveRecord(t, h, "whitelist_actions", "a1",
		`{"permission":"bash","kind":"strict","value":"make","active":true}`)
	permissiontest.SaveRecord(t, h, "whitelist_actions", "a2",
		`{"permission":"bash","kind":"pattern","value":"git log*","active":true}`)
	// not what it says
	permissiontest.SaveRecord(t, h, "whitelist_actions", "a3",
		`{"permission":"bash","kind":"strict","value":"rm *","active":true}`)
	permissiontest.SaveRecord(t, h, "whitelist_actions", "a4", `{"permission":"write","active":true}`)
	permissiontest.SaveRecord(t, h, "whitelist_actions", "a5", `{"permission":"edit","active":false}`)
	// without a noun a verb allows nothing
	is.Equal(permissiontest.InForce(t, h, rule.Scope{}), []string{"bash: make", "bash: git log*"})
	noun := permissiontest.SaveRecord(t, h, "whitelist_targets", "t1", `{"name":"docs","pattern":"docs/**","active":true}`)
	permissiontest.SaveRecord(t, h, "whitelist_targets", "t2", `{"name":"src","pattern":"src/**","active":false}`)
	is.Equal(permissiontest.InForce(t, h, rule.Scope{}), []string{"bash: make", "bash: git log*", "write: docs/**"})
	rules, err := rule.InForce(t.Context(), h.Records, rule.Scope{})
	is.NoErr(err)
	is.Equal(rules[2].ID, "whitelist_actions/a4")
	is.Equal(rules[2].Version, noun) // it is so since then
	permissiontest.DeleteRecord(t, h, "whitelist_targets", "t1")
	is.Equal(len(permissiontest.InForce(t, h, rule.Scope{})), 2)
}

// An invalid rule that was stored without the checks never allows more than a valid one.
func TestRuleThatCannotBeReadAllowsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	for id, fields := range map[string]string{
		"r1": `{"tool":"bash","pattern":"","action":"allow","active":true}`,
		"r2": `{"tool":"","pattern":"make","action":"allow","active":true}`,
		"r3": `{"tool":"bash","pattern":"make","action":"allow","active":"yes"}`,
		"r4": `{"tool":"bash","pattern":"make","action":"allow","active":true,"expires_at":"soon"}`,
	} {
		permissiontest.SaveRecord(t, h, "tool_permissions", id, fields)
	}
	is.Equal(len(permissiontest.InForce(t, h, rule.Scope{At: time.Now()})), 0)
	permissiontest.SaveRecord(t, h, "tool_permissions", "r5", `{"tool":"bash","pattern":"","action":"deny","active":true}`)
	permissiontest.SaveRecord(t, h, "tool_permissions", "r6",
		`{"tool":"bash","pattern":"make","action":"never","active":true}`)
	rules, err := rule.InForce(t.Context(), h.Records, rule.Scope{At: time.Now()})
	is.NoErr(err)
	for _, r := range rules { // what would have narrowed asks
		is.Equal([]string{r.Permission, r.Pattern, string(r.Action)}, []string{"bash", "*", "ask"})
	}
	is.Equal(len(rules), 2)
}
