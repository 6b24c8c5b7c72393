package policy_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

// permissionCase is one line of a corpus: rules, a request, and the expected verdict.
type permissionCase struct {
	ID         string                            `json:"id"`
	Action     string                            `json:"rule_action"`
	Target     string                            `json:"rule_target"`
	Extra      []struct{ Action, Target string } `json:"extra_rules"`
	Permission string                            `json:"permission"`
	Asked      string                            `json:"command_or_path"`
	Expected   policy.Action                     `json:"expected"`
	Why        string                            `json:"why"`
	Category   string                            `json:"category"`
	Cwd        string                            `json:"cwd"`
	Symlinks   []struct{ Link, To string }       `json:"symlinks"`
}

func readCases(t testing.TB, name string) (cases []permissionCase) {
	is := is.New(t)
	f, err := os.Open(path.Join("testdata", name))
	is.NoErr(err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c permissionCase
		is.NoErr(json.Unmarshal(lines.Bytes(), &c)) // a line that is no case
		cases = append(cases, c)
	}
	is.NoErr(lines.Err())
	return cases
}

// rules are those of a case. Every rule of a pattern "deny bash: x" form keeps its action.
func (c permissionCase) rules() []policy.Rule {
	rules := []policy.Rule{{Permission: c.Action, Pattern: c.Target}}
	for _, r := range c.Extra {
		rules = append(rules, policy.Rule{Permission: r.Action, Pattern: r.Target})
	}
	for i := range rules {
		if action, permission, two := strings.Cut(rules[i].Permission, " "); two {
			rules[i].Action, rules[i].Permission = policy.Action(action), permission
		}
	}
	return rules
}

// ask returns the request of a case, in a workspace without files except its symlinks.
func (c permissionCase) ask() policy.Input {
	a := policy.Input{Type: c.Permission, Patterns: []string{c.Asked}, Cwd: c.Cwd, Root: "/workspace"}
	switch c.Permission {
	case "bash":
		a.Command = c.Asked
	case "webfetch":
		a.URL = c.Asked
	case "mcp":
		a.Tool = c.Asked
	default:
		a.Path = c.Asked
	}
	a.Resolve = func(p string) (string, bool) {
		for _, s := range c.Symlinks {
			if p == s.Link || strings.HasPrefix(p, s.Link+"/") {
				return s.To + strings.TrimPrefix(p, s.Link), true
			}
		}
		return p, true
	}
	return a
}

func TestCorpus(t *testing.T) {
	for _, name := range []string{"permission_cases.jsonl", "more_cases.jsonl"} {
		t.Run(name, func(t *testing.T) {
			for _, c := range readCases(t, name) {
				t.Run(c.ID, func(t *testing.T) {
					is := is.New(t)
					v, checked := policy.Explain(c.rules(), c.ask())
					t.Logf("%s on %v: %q: %s", c.Why, c.rules(), c.Asked, v.Reason)
					is.Equal(v.Action, c.Expected)
					is.True(v.Reason != "")                // says why
					is.Equal(len(checked), len(c.rules())) // every rule was looked at
				})
			}
		})
	}
}
