package handlers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// keeps makes or changes a record that is a rule, and gives the place of that.
func keeps(t testing.TB, h *Handlers, collection, id, fields string) uint64 {
	t.Helper()
	is := is.New(t)
	e, err := events.NewConfig(collection, id, alice, events.Saved{Fields: json.RawMessage(fields)})
	is.NoErr(err)
	seq, err := h.Log.Append(t.Context(), e)
	is.NoErr(err)
	return seq
}

func drops(t testing.TB, h *Handlers, collection, id string) {
	t.Helper()
	is := is.New(t)
	_, err := h.DeleteRecord(t.Context(), DeleteRecord{Collection: collection, Record: id})
	is.NoErr(err)
}

// inForce is how a person would write the rules of a scope.
func inForce(t testing.TB, h *Handlers, s RuleScope) (rules []string) {
	t.Helper()
	found, err := h.Rules(t.Context(), s)
	is.New(t).NoErr(err)
	for _, r := range found {
		rules = append(rules, r.String())
	}
	return rules
}

func TestRulesAreForTheirChatAgentAndTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	keeps(t, h, "ai_agents", "a1", `{"name":"build"}`)
	for id, fields := range map[string]string{
		"all":     `{"tool":"bash","pattern":"all","action":"allow","active":true}`,
		"paused":  `{"tool":"bash","pattern":"paused","action":"allow","active":false}`,
		"chat":    `{"tool":"bash","pattern":"chat","action":"allow","active":true,"chat":"c1"}`,
		"agent":   `{"tool":"bash","pattern":"agent","action":"allow","active":true,"agent":"a1"}`,
		"nobody":  `{"tool":"bash","pattern":"nobody","action":"allow","active":true,"agent":"a9"}`,
		"noagent": `{"tool":"bash","pattern":"noagent","action":"deny","active":true,"agent":"a1"}`,
		"hour":    `{"tool":"bash","pattern":"hour","action":"allow","active":true,"expires_at":"2026-01-02 03:00:00.000Z"}`,
	} {
		keeps(t, h, toolPermissions, id, fields)
	}
	at := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, s)
		is.NoErr(err)
		return at
	}
	for name, c := range map[string]struct {
		scope RuleScope
		has   map[string]bool
	}{
		"in the chat":           {RuleScope{Chat: "c1", Agent: "build", At: at("2026-01-02T02:59:59.999Z")}, map[string]bool{"all": true, "chat": true, "agent": true, "deny noagent": true, "hour": true}},
		"in another, too late":  {RuleScope{Chat: "c2", Agent: "build", At: at("2026-01-02T03:00:00Z")}, map[string]bool{"all": true, "agent": true, "deny noagent": true}},
		"of another agent":      {RuleScope{Chat: "c2", Agent: "plan", At: at("2027-01-02T03:00:00Z")}, map[string]bool{"all": true}},
		"of nobody knows which": {RuleScope{Chat: "c2", At: at("2027-01-02T03:00:00Z")}, map[string]bool{"all": true, "deny noagent": true}},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			found, err := h.Rules(t.Context(), c.scope)
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
	drops(t, h, "ai_agents", "a1") // what was allowed it nobody is allowed any more; what was denied stays so
	is.Equal(len(inForce(t, h, RuleScope{Agent: "build", At: time.Now()})), 2)
}

func TestRuleNamesItsRecordAndVersionThenAsNow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	one := keeps(t, h, toolPermissions, "r1", `{"tool":"bash","pattern":"make","action":"allow","active":true}`)
	two := keeps(t, h, toolPermissions, "r1", `{"tool":"bash","pattern":"make test","action":"allow","active":true}`)
	rules, err := h.Rules(t.Context(), RuleScope{At: time.Now()})
	is.NoErr(err)
	is.Equal(rules, []policy.Rule{{Permission: "bash", Pattern: "make test", Action: policy.Allow, ID: "tool_permissions/r1", Version: two}})
	drops(t, h, toolPermissions, "r1")
	is.Equal(len(inForce(t, h, RuleScope{At: time.Now()})), 0)
	rules, err = h.Rules(t.Context(), RuleScope{At: time.Now(), Seq: one}) // as it was
	is.NoErr(err)
	is.Equal(rules, []policy.Rule{{Permission: "bash", Pattern: "make", Action: policy.Allow, ID: "tool_permissions/r1", Version: one}})
	rules, err = h.Rules(t.Context(), RuleScope{At: time.Now(), Seq: two})
	is.NoErr(err)
	is.Equal(rules[0].Pattern, "make test")
	is.Equal(len(inForce(t, h, RuleScope{At: time.Now(), Seq: one - 1})), 0)
}

func TestWhitelistIsVerbsAndNouns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	keeps(t, h, whitelistActions, "a1", `{"permission":"bash","kind":"strict","value":"make","active":true}`)
	keeps(t, h, whitelistActions, "a2", `{"permission":"bash","kind":"pattern","value":"git log*","active":true}`)
	keeps(t, h, whitelistActions, "a3", `{"permission":"bash","kind":"strict","value":"rm *","active":true}`) // not what it says
	keeps(t, h, whitelistActions, "a4", `{"permission":"write","active":true}`)
	keeps(t, h, whitelistActions, "a5", `{"permission":"edit","active":false}`)
	is.Equal(inForce(t, h, RuleScope{}), []string{"bash: make", "bash: git log*"}) // without a noun a verb allows nothing
	noun := keeps(t, h, whitelistTargets, "t1", `{"name":"docs","pattern":"docs/**","active":true}`)
	keeps(t, h, whitelistTargets, "t2", `{"name":"src","pattern":"src/**","active":false}`)
	is.Equal(inForce(t, h, RuleScope{}), []string{"bash: make", "bash: git log*", "write: docs/**"})
	rules, err := h.Rules(t.Context(), RuleScope{})
	is.NoErr(err)
	is.Equal(rules[2].ID, "whitelist_actions/a4")
	is.Equal(rules[2].Version, noun) // it is so since then
	drops(t, h, whitelistTargets, "t1")
	is.Equal(len(inForce(t, h, RuleScope{})), 2)
}

// A rule that somebody wrote past the checks never allows more than one that can be read.
func TestRuleThatCannotBeReadAllowsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	for id, fields := range map[string]string{
		"r1": `{"tool":"bash","pattern":"","action":"allow","active":true}`,
		"r2": `{"tool":"","pattern":"make","action":"allow","active":true}`,
		"r3": `{"tool":"bash","pattern":"make","action":"allow","active":"yes"}`,
		"r4": `{"tool":"bash","pattern":"make","action":"allow","active":true,"expires_at":"soon"}`,
	} {
		keeps(t, h, toolPermissions, id, fields)
	}
	is.Equal(len(inForce(t, h, RuleScope{At: time.Now()})), 0)
	keeps(t, h, toolPermissions, "r5", `{"tool":"bash","pattern":"","action":"deny","active":true}`)
	keeps(t, h, toolPermissions, "r6", `{"tool":"bash","pattern":"make","action":"never","active":true}`)
	rules, err := h.Rules(t.Context(), RuleScope{At: time.Now()})
	is.NoErr(err)
	for _, r := range rules { // what would have narrowed asks
		is.Equal([]string{r.Permission, r.Pattern, string(r.Action)}, []string{"bash", "*", "ask"})
	}
	is.Equal(len(rules), 2)
}

func TestRuleIsActiveUnlessItsAuthorSaysOtherwise(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	save := func(collection, fields string) string {
		var set map[string]json.RawMessage
		is.NoErr(json.Unmarshal([]byte(fields), &set))
		id, _, err := h.SaveRecord(t.Context(), SaveRecord{Command: Command{Actor: alice}, Collection: collection, New: true, Set: set})
		is.NoErr(err)
		return id
	}
	save(toolPermissions, `{"tool":"bash","pattern":"rm*","action":"deny"}`)
	save(toolPermissions, `{"tool":"bash","pattern":"make*","action":"allow"}`)
	save(whitelistActions, `{"permission":"write"}`)
	save(whitelistTargets, `{"name":"docs","pattern":"docs/**"}`)
	id := save(toolPermissions, `{"tool":"bash","pattern":"paused*","action":"allow","active":false}`)
	want := []string{"deny bash: rm*", "bash: make*", "write: docs/**"}
	is.Equal(inForce(t, h, RuleScope{}), want)

	change := func(fields string) {
		var set map[string]json.RawMessage
		is.NoErr(json.Unmarshal([]byte(fields), &set))
		_, _, err := h.SaveRecord(t.Context(), SaveRecord{Command: Command{Actor: alice}, Collection: toolPermissions, Record: id, Set: set})
		is.NoErr(err)
	}
	change(`{"note":"still paused"}`)
	is.Equal(inForce(t, h, RuleScope{}), want)
	change(`{"active":true}`)
	is.Equal(inForce(t, h, RuleScope{}), append(want, "bash: paused*"))
}
