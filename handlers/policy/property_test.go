package policy_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pocketcoder/handlers/policy"
	"pocketcoder/ops/expect"
)

// words are pieces of commands, harmless and not.
var words = []string{"git", "status", "ls", "-la", "cat", "a.txt", "rm", "-rf", "/", "..", "../x", "&&", ";", "|",
	"||", "&", "\n", "'x y'", `"q"`, "$(id)", "`id`", "$x", "> out",
	"< in", "2>&1", "> /dev/null", "cd", "src", "sh", "-c", "env", "A=1", "(", ")", "{", "}", "#", "!", "*", "~", "\\",
	"find", "-exec", "echo", "--output=x", ".env", "sort", "-o", "xargs"}

func someCommand(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 9).Draw(t, "words"), " ")
}

func someRules(t *rapid.T) []policy.Rule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policy.Rule {
		return policy.Rule{
			Permission: rapid.SampledFrom([]string{"bash", "bash", "bash", "write", "read", "*"}).Draw(t, "permission"),
			Pattern:    rapid.SampledFrom([]string{"*", "git*", "git status*", "ls*", "cat*", "echo*", "cd*", "rm*", "sort*", "**", "src/**", "a.txt", policy.Inside}).Draw(t, "pattern"),
			Action:     rapid.SampledFrom([]policy.Action{"", policy.Allow, policy.Allow, policy.AskPerson, policy.Deny}).Draw(t, "action"),
		}
	}), 0, 8).Draw(t, "rules")
}

func TestTheOrderOfRulesDoesNotMatter(t *testing.T) {
	expect.Property(t, func(t *rapid.T) {
		rules, a := someRules(t), bash(someCommand(t))
		if v, w := policy.Evaluate(rules, a), policy.Evaluate(rapid.Permutation(rules).Draw(t, "order"),
			a); v.Action != w.Action {
			t.Fatalf("%q: %s (%s), in another order %s (%s)", a.Command, v.Action, v.Reason, w.Action, w.Reason)
		}
	})
}

func TestMoreRulesThatDenyNeverAllowMore(t *testing.T) {
	strict := map[policy.Action]int{policy.Allow: 0, policy.AskPerson: 1, policy.Deny: 2}
	expect.Property(t, func(t *rapid.T) {
		rules, more, a := someRules(t), someRules(t), bash(someCommand(t))
		for i := range more {
			more[i].Action = rapid.SampledFrom([]policy.Action{policy.AskPerson, policy.Deny}).Draw(t, "action")
		}
		before, after := policy.Evaluate(rules, a), policy.Evaluate(slices.Concat(rules, more), a)
		if strict[after.Action] < strict[before.Action] {
			t.Fatalf("%q: %s, with more rules %s (%s)", a.Command, before.Action, after.Action, after.Reason)
		}
	})
}

func TestNothingIsAllowedBecauseOfWhatStandsBesideIt(t *testing.T) {
	rules := append([]policy.Rule{{Permission: "write", Pattern: policy.Inside}}, policy.Defaults...)
	expect.Property(t, func(t *rapid.T) {
		joint := rapid.SampledFrom([]string{" && ", "; ", " | ", " || ", "\n", " & ", " $(", "`", " <("}).Draw(t, "joint")
		for _, command := range []string{someCommand(t) + joint + "unknown x", "unknown x" + joint + someCommand(t)} {
			if v := policy.Evaluate(rules, bash(command)); v.Action == policy.Allow &&
				strings.Contains(outside(command), "unknown") {
				t.Fatalf("%q is allowed: %s", command, v.Reason)
			}
		}
	})
}

// outside gives what of a command stands outside comments and redirects' files: where a word can be the name of a
// program.
func outside(command string) string {
	var kept []string
	for _, line := range strings.Split(command, "\n") {
		line, _, _ = strings.Cut(" "+line, " #")
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

func TestAnAllowedPathIsInTheWorkspace(t *testing.T) {
	rules := []policy.Rule{{Permission: "edit", Pattern: policy.Inside}, {Permission: "edit", Pattern: "**"},
		{Permission: "edit", Pattern: "/workspace/**"}}
	part := rapid.SampledFrom([]string{"a", "b", "..", ".", "", "link", ".git", "etc", "workspace", "out"})
	links := map[string]string{"/workspace/link": "/etc", "/workspace/a/link": "/workspace/b", "/workspace/b/out": "/"}
	resolve := func(p string) (string, bool) {
		for range 10 {
			moved := false
			for link, to := range links {
				if p == link || strings.HasPrefix(p, link+"/") {
					p, moved = path.Join(to, strings.TrimPrefix(p, link)), true
				}
			}
			if !moved {
				return p, true
			}
		}
		return "", false
	}
	expect.Property(t, func(t *rapid.T) {
		asked := rapid.SampledFrom([]string{"", "/", "/workspace/"}).Draw(t, "start") +
			strings.Join(rapid.SliceOfN(part, 1, 7).Draw(t, "parts"), "/")
		a := policy.Input{Type: "edit", Path: asked, Cwd: "/workspace", Root: "/workspace", Resolve: resolve}
		if policy.Evaluate(rules, a).Action != policy.Allow {
			return
		}
		if real := walk(asked, resolve); real != "/workspace" && !strings.HasPrefix(real, "/workspace/") ||
			strings.Contains(real, "/.git") {
			t.Fatalf("%q leads to %s", asked, real)
		}
	})
}

// walk follows a path as the kernel does, one name after the other.
func walk(p string, resolve func(string) (string, bool)) string {
	at := "/workspace"
	if strings.HasPrefix(p, "/") {
		at = "/"
	}
	for _, name := range strings.Split(p, "/") {
		at, _ = resolve(path.Join(at, name))
	}
	return at
}
