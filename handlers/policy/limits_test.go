package policy_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

func TestAnAmbiguousRuleNamesWhatItDoesNotCover(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"bash: npm run deploy*": "It covers “npm run deploy” with any further words. It does not cover a longer name, such as " +
			"“npm run deploy-all”. To allow such names, write “npm run deploy-*”.",
		"bash: ls*":         "It covers “ls” with any further words. It does not cover a longer name, such as “ls-all”.",
		"bash: git status*": "",
		"bash: make deploy*": "It covers “make deploy” with any further words. It does not cover a longer name, such as " +
			"“make deploy-all”. To allow such names, write “make deploy-*”.",
		"bash: npm run deploy *":                   "",
		"bash: npm run deploy:*":                   "",
		"bash: npm run deploy":                     "",
		"bash: npm *":                              "It covers only the sub-commands of “npm” that are known to be harmless. Name another one in the pattern.",
		"bash: sh *":                               "A person decides about these commands all the same: “sh” is a shell; a rule does not reach what it runs.",
		"bash: python3 *":                          "A person decides about these commands all the same: “python3” runs the program text it is given; a rule reaches that only when it names the script.",
		"bash: python3 x.py *":                     "",
		"bash: *":                                  "",
		"deny bash: npm run deploy*":               "",
		"deny bash: rm -rf*":                       "It does not cover another spelling of the option “-rf*”.",
		"read: *.env":                              "It covers one folder only, because * does not match /. Write ** for any folders.",
		"read: docs/**":                            "",
		"deny read: *.env":                         "",
		"network: *.example.org":                   "It covers the names below example.org, and not example.org itself.",
		"webfetch: https://docs.example.org":       "It covers only this page. For the whole host, write https://docs.example.org/*.",
		"deny webfetch: https://docs.example.org":  "",
		"webfetch: https://docs.example.org/a/*":   "",
		"mcp: github_list":                         "",
		"bash: git status && ls (an invalid rule)": "",
	} {
		is := is.New(t)
		permission, pattern, _ := strings.Cut(rule, ": ")
		r := policy.Rule{Permission: permission, Pattern: pattern}
		if action, permission, two := strings.Cut(permission, " "); two {
			r.Action, r.Permission = policy.Action(action), permission
		}
		is.Equal(strings.Join(r.Limits(), " "), want)
	}
}
