package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

func TestParseRuleReadsWhatAPersonWrites(t *testing.T) {
	for text, want := range map[string]policy.Rule{
		"bash: git status*":        {Permission: "bash", Pattern: "git status*", Action: policy.Allow},
		" bash :git log * ":        {Permission: "bash", Pattern: "git log *", Action: policy.Allow},
		"deny bash: rm*":           {Permission: "bash", Pattern: "rm*", Action: policy.Deny},
		"ask edit: docs/**":        {Permission: "edit", Pattern: "docs/**", Action: policy.AskPerson},
		"allow read: <workspace>":  {Permission: "read", Pattern: policy.Inside, Action: policy.Allow},
		"deny *: *":                {Permission: "*", Pattern: "*", Action: policy.Deny},
		"webfetch: https://a.b/*":  {Permission: "webfetch", Pattern: "https://a.b/*", Action: policy.Allow},
		"deny server_tool: *":      {Permission: "server_tool", Pattern: "*", Action: policy.Deny},
		"ask mcp: github_*":        {Permission: "mcp", Pattern: "github_*", Action: policy.AskPerson},
		`bash: git commit -m "x"*`: {Permission: "bash", Pattern: `git commit -m "x"*`, Action: policy.Allow},
	} {
		t.Run(text, func(t *testing.T) {
			is := is.New(t)
			r, err := policy.ParseRule(text)
			is.NoErr(err)
			is.Equal(r, want)
			again, err := policy.ParseRule(r.String())
			is.NoErr(err)
			is.Equal(again, want) // it is written as it is read
		})
	}
}

func TestABrokenRuleNamesItsColumn(t *testing.T) {
	for text, column := range map[string]int{
		"":                           1,
		"bash":                       1,
		": x":                        1,
		"bash:":                      6, // the empty pattern
		"bash: git status && ls":     18,
		"bash: echo $(id)":           12,
		"bash: echo 'a":              12,
		"bash: größe; x":             12,
		"bash: git\u200bstatus":      10,
		"deny bash: a|b":             13,
		"write: /a/../b":             11,
		"write: ~/a":                 8,
		"write: docs/":               12,
		"write: a**/b":               8,
		`write: a/b\c`:               10,
		"webfetch: *":                11,
		"webfetch: ftp://a/b":        11,
		"webfetch: https://*.com/":   19,
		"webfetch: https://a.b*.c/":  21,
		"webfetch: https://a_b@c.d/": 19,
		"network: *":                 10,
		"network: *.com":             10,
		"network: a.*.example.com":   12,
		"network: a*.example.com":    11,
		"network: exämple.com":       10,
		"network: https://a.b":       16,
		"network: a.b:http":          14,
		"network: *.b.c:0":           16,
		"network: localhost":         10,
		"network: 10.0.0.1":          10,
		"network: *.8.8.8":           10,
		"network: *.8.8.8.8:53":      10,
		"deny network: *.8.8.8.8":    15,
		"deny network: *.[::1]":      15,
		"ask network: *.0x8":         14,
		"mcp: github_*":              13,
		"task: *":                    7,
		"glob: src/**":               7,
		"maybe bash: x":              0, // not the pattern
		"doom_loop: *":               0,
		"budget: *":                  0,
		"keep: .envrc":               0,
		"deny keep: .envrc":          0,
		"deny keep: *":               0,
		"launch: *":                  0,
		"*: *":                       0,
		"deny *: x":                  0,
	} {
		t.Run(text, func(t *testing.T) {
			is := is.New(t)
			_, err := policy.ParseRule(text)
			var wrong *policy.SyntaxError
			is.True(errors.As(err, &wrong)) // it says what is wrong
			is.Equal(wrong.Column, column)
			is.True(wrong.Text != "")
		})
	}
}

func TestCheckCountsColumnsOfThePattern(t *testing.T) {
	is := is.New(t)
	err := policy.Rule{Permission: "bash", Pattern: "größe; x"}.Check()
	var wrong *policy.SyntaxError
	is.True(errors.As(err, &wrong))
	is.Equal(wrong.Column, 6)
	is.Equal(err.Error(), `column 6: ';' is shell syntax; a rule is for one command`)
	is.NoErr(policy.Rule{Permission: "bash", Pattern: "*"}.Check())
	for _, r := range policy.Defaults {
		is.NoErr(r.Check())
	}
}

func TestRuleOfAToolByItsOwnName(t *testing.T) {
	is := is.New(t)
	for _, c := range []struct{ given, want policy.Rule }{
		{policy.Rule{Permission: "github_list", Pattern: "*"}, policy.Rule{Permission: "mcp", Pattern: "github_list"}},
		{policy.Rule{Permission: "github_list", Pattern: "x"}, policy.Rule{Permission: "github_list", Pattern: "x"}},
		{policy.Rule{Permission: "bash", Pattern: "*"}, policy.Rule{Permission: "bash", Pattern: "*"}},
		{policy.Rule{Permission: "doom_loop", Pattern: "*"}, policy.Rule{Permission: "doom_loop", Pattern: "*"}},
		{policy.Rule{Permission: "*", Pattern: "*"}, policy.Rule{Permission: "*", Pattern: "*"}},
	} {
		is.Equal(c.given.OfTool(), c.want)
	}
}

func TestWriteRulesReachEditsThatWriteTheWholeFile(t *testing.T) {
	is := is.New(t)
	rules := []policy.Rule{{Permission: "write", Pattern: "/workspace/**"}}
	a := policy.Input{Type: "edit", Patterns: []string{"a.txt"}, Path: "/workspace/a.txt", Cwd: "/workspace",
		Root: "/workspace"}
	is.Equal(policy.Evaluate(rules, a).Action, policy.AskPerson)
	a.Also = "write"
	is.Equal(policy.Evaluate(rules, a).Action, policy.Allow)
	a.Path = "/workspace/.git/config"
	is.Equal(policy.Evaluate(rules, a).Action, policy.AskPerson)
}

func TestLongBlankCommandIsAsked(t *testing.T) {
	is := is.New(t)
	for _, text := range []string{strings.Repeat("\n", 5000) + "ls", strings.Repeat(" ", 5000), "\x00\n",
		strings.Repeat("x ", 4000)} {
		a := policy.Input{Type: "bash", Patterns: []string{"x"}, Command: text, Cwd: "/w", Root: "/w"}
		is.Equal(policy.Evaluate(policy.Defaults, a).Action, policy.AskPerson)
		policy.Suggest(a, nil)
	}
}
