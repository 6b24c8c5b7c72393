package policy_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

func bash(command string) policy.Ask {
	return policy.Ask{Type: "bash", Patterns: []string{command}, Command: command}
}

func TestEvaluate(t *testing.T) {
	rules := append([]policy.Rule{{"bash", "git status*"}, {"bash", "make test"}, {"edit", "docs/*"}, {"bash", ""}, {"", "x"}, {"bash", "*"}}, policy.Defaults...)
	read := func(pattern, real string) policy.Ask {
		return policy.Ask{Type: "read", Patterns: []string{pattern}, Paths: []string{real}, Root: "/workspace"}
	}
	for name, c := range map[string]struct {
		ask  policy.Ask
		rule string // "" is ask
	}{
		"exact command":               {bash("make test"), "bash: make test"},
		"exact command with more":     {bash("make test x"), ""},
		"prefix alone":                {bash("git status"), "bash: git status*"},
		"prefix with words":           {bash("git status --short docs"), "bash: git status*"},
		"prefix is a word":            {bash("git statusx"), ""},
		"and":                         {bash("git status && rm -rf /"), ""},
		"semicolon":                   {bash("git status; id"), ""},
		"pipe":                        {bash("git status | sh"), ""},
		"substitution":                {bash("git status $(id)"), ""},
		"backticks":                   {bash("git status `id`"), ""},
		"redirect":                    {bash("git status > /etc/x"), ""},
		"newline":                     {bash("git status\nid"), ""},
		"background":                  {bash("git status & id"), ""},
		"quote":                       {bash(`git status "a b"`), ""},
		"unquoted glob":               {bash("git status *"), ""},
		"patterns lie":                {policy.Ask{Type: "bash", Patterns: []string{"make test"}, Command: "make test; id"}, ""},
		"lone star allows no command": {bash("id"), ""},
		"empty command":               {bash(""), ""},
		"no patterns":                 {policy.Ask{Type: "bash", Command: "make test"}, ""},
		"read inside":                 {read("a.txt", "/workspace/a.txt"), "read: " + policy.Inside},
		"read through a symlink":      {read("link", "/etc/passwd"), ""},
		"read beside":                 {read("../workspace2/a", "/workspace2/a"), ""},
		"read unresolved":             {policy.Ask{Type: "read", Patterns: []string{"a"}, Root: "/workspace"}, ""},
		"read without a root":         {policy.Ask{Type: "read", Patterns: []string{"a"}, Paths: []string{"/a"}}, ""},
		"glob":                        {policy.Ask{Type: "glob", Patterns: []string{"**/*.go"}}, "glob: " + policy.Inside},
		"glob upwards":                {policy.Ask{Type: "glob", Patterns: []string{"../*"}}, ""},
		"glob absolute":               {policy.Ask{Type: "glob", Patterns: []string{"/etc/*"}}, ""},
		"grep":                        {policy.Ask{Type: "grep", Patterns: []string{"a..b"}}, "grep: " + policy.Inside},
		"todo":                        {policy.Ask{Type: "todowrite", Patterns: []string{"*"}}, "todowrite: *"},
		"edit in docs":                {policy.Ask{Type: "edit", Patterns: []string{"docs/a.md"}}, "edit: docs/*"},
		"edit in docs and elsewhere":  {policy.Ask{Type: "edit", Patterns: []string{"docs/a.md", "main.go"}}, ""},
		"write asks":                  {policy.Ask{Type: "edit", Patterns: []string{"main.go"}}, ""},
		"a rule is for its type":      {policy.Ask{Type: "webfetch", Patterns: []string{"make test"}}, ""},
		"outside directory asks":      {policy.Ask{Type: "external_directory", Patterns: []string{"/opt/*"}}, ""},
		"an unknown permission asks":  {policy.Ask{Type: "launch", Patterns: []string{"*"}}, ""},
		"an empty permission asks":    {policy.Ask{Patterns: []string{"x"}}, ""},
		"subagents ask":               {policy.Ask{Type: "task", Patterns: []string{"general"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			rule, ok := policy.Evaluate(rules, c.ask)
			is.Equal(ok, c.rule != "")
			if ok {
				is.Equal(rule.String(), c.rule)
			}
		})
	}
}

func TestParseRuleNamesWhatIsWrong(t *testing.T) {
	is := is.New(t)
	r, err := policy.ParseRule("bash: git log *")
	is.NoErr(err)
	is.Equal(r, policy.Rule{Permission: "bash", Pattern: "git log *"})
	for _, bad := range []string{"", "bash", "bash:", ": x", "bash: a*b", "b*: x"} {
		_, err := policy.ParseRule(bad)
		is.True(err != nil) // refused
	}
}
