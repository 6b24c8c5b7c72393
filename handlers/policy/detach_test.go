package policy_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

// A detached command needs what the command itself needs, and a rule that lets it be detached.
func TestDetachedCommandIsAllowedTwice(t *testing.T) {
	t.Parallel()
	allow := func(patterns ...string) (rules []policy.Rule) {
		for _, p := range patterns {
			rules = append(rules, policy.Rule{Permission: "bash", Pattern: p, Action: policy.Allow})
		}
		return rules
	}
	deny := func(pattern string) policy.Rule {
		return policy.Rule{Permission: "bash", Pattern: pattern, Action: policy.Deny}
	}
	both := allow("npm run *", "detach npm run *")
	for name, c := range map[string]struct {
		rules   []policy.Rule
		command string
		want    policy.Action
	}{
		"both":                                   {both, "detach npm run dev", policy.Allow},
		"not detached":                           {both, "npm run dev", policy.Allow},
		"the command alone":                      {allow("npm run *"), "detach npm run dev", policy.AskPerson},
		"the detaching alone":                    {allow("detach npm run *"), "detach npm run dev", policy.AskPerson},
		"a rule for everything":                  {allow("*"), "detach npm run dev", policy.AskPerson},
		"everything detached":                    {allow("npm run *", "detach *"), "detach npm run dev", policy.Allow},
		"another one":                            {both, "detach npm test", policy.AskPerson},
		"a default one":                          {append(allow("detach *"), policy.Defaults...), "detach sort a", policy.Allow},
		"one of two":                             {both, "detach npm run dev && rm -r x", policy.AskPerson},
		"two":                                    {append(both, allow("echo *", "detach echo *")...), "detach npm run dev && echo done", policy.Allow},
		"two, one must not be detached":          {append(both, allow("echo *")...), "detach npm run dev && echo done", policy.AskPerson},
		"denied itself":                          {append(both, deny("npm run dev")), "detach npm run dev", policy.Deny},
		"denied detached":                        {append(both, deny("detach*")), "detach npm run dev", policy.Deny},
		"denied detached, and not so":            {append(both, deny("detach*")), "npm run dev", policy.Allow},
		"denied in what cannot be read":          {append(both, deny("rm*")), "detach if true; then rm -r x; fi", policy.Deny},
		"not at the beginning":                   {append(both, allow("echo *")...), "echo a && detach npm run dev", policy.AskPerson},
		"twice":                                  {append(both, allow("detach *")...), "detach detach npm run dev", policy.AskPerson},
		"a shell":                                {allow("bash *", "detach bash *"), "detach bash -c ls", policy.AskPerson},
		"written elsewhere":                      {both, "detach npm run dev > /etc/passwd", policy.AskPerson},
		"denied behind one not at the beginning": {append(both, deny("rm*")), "echo a; detach rm x", policy.Deny},
	} {
		is := is.New(t)
		v := policy.Evaluate(c.rules, policy.Input{Type: "bash", Command: c.command, Cwd: "/w", Root: "/w"})
		if v.Action != c.want {
			t.Errorf("%s: %s %q", name, v.Action, v.Reason)
		}
		is.True(v.Reason != "")
	}
}

func TestRulesForADetachedCommandAreSuggestedTogether(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ask := policy.Input{Type: "bash", Command: "detach npm run dev", Cwd: "/w", Root: "/w"}
	rules := policy.Suggest(ask, []string{"detach npm *"})
	var patterns []string
	for _, r := range rules {
		patterns = append(patterns, r.Pattern)
	}
	is.Equal(strings.Join(patterns, "|"), "npm run dev *|detach npm run dev *")
	is.Equal(policy.Evaluate(rules, ask).Action, policy.Allow)
	ask.Command = "detach bash -c ls"
	is.Equal(len(policy.Suggest(ask, nil)), 0)
}
