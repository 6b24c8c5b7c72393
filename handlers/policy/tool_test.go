package policy_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
)

func TestARuleThatDeniesAWholeToolNamesIt(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"deny bash: *":                     "bash",
		"deny bash: rm*":                   "",
		"ask bash: *":                      "",
		"bash: git status*":                "",
		"deny write: *":                    "edit",
		"deny edit: docs/**":               "",
		"deny *: *":                        "*",
		"deny mcp: *":                      "pocketcoder_*",
		"deny mcp: pocketcoder_assign":     "pocketcoder_assign",
		"deny mcp: pocketcoder_mcp_lab_*":  "pocketcoder_mcp_lab_*",
		"deny mcp: b*":                     "", // the tool bash has another permission
		"deny network: *":                  "",
		"deny external_directory: *":       "",
		"deny question: *":                 "",
		"deny webfetch: https://x.example": "",
	} {
		r, err := policy.ParseRule(rule)
		is.New(t).NoErr(err)
		if got := r.DeniedTool(); got != want {
			t.Errorf("%s denies the tool %q, want %q", rule, got, want)
		}
	}
}
