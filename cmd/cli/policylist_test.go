package cli

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

func TestListedRulesShowTheirScopeAndEscapeControlCharacters(t *testing.T) {
	is := is.New(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for fields, want := range map[string]string{
		`{"tool":"bash","pattern":"git status*","action":"allow","active":true}`:              "bash: git status* active",
		`{"tool":"bash","pattern":"rm*","action":"deny","active":false}`:                      "deny bash: rm* paused",
		`{"tool":"read","pattern":"a","active":true,"expires_at":"2026-01-02 03:04:05.000Z"}`: "read: a expired",
		`{"tool":"read","pattern":"a","active":true,"expires_at":"2026-01-02 03:04:05.001Z"}`: "read: a active",
	} {
		var f ruleFields
		is.NoErr(json.Unmarshal([]byte(fields), &f))
		is.Equal(f.text("tool_permissions")+" "+f.state(now), want)
	}
	is.Equal(ruleFields{Permission: "write"}.text("whitelist_actions"), "write: every target")
	is.Equal(ruleFields{Permission: "bash", Value: "ls"}.text("whitelist_actions"), "bash: ls")
	is.Equal(ruleFields{Name: "src", Pattern: "/w/**"}.text("whitelist_targets"), "target src: /w/**")
	var out bytes.Buffer
	is.NoErr(printRules(&out, []listedRule{{ID: "tool_permissions/r", Rule: "bash: a\x1b[2J", Chat: "c1", Note: "b\rc"},
		{Agent: "poco"}, {Project: "app"}, {Project: "app", Agent: "poco"}}))
	is.True(!strings.ContainsAny(out.String(), "\x1b\r"))
	is.True(strings.Contains(out.String(), "chat c1") && strings.Contains(out.String(), "agent poco"))
	is.True(strings.Contains(out.String(), " project app") && strings.Contains(out.String(), "agent poco of project app"))

	out.Reset()
	is.NoErr(printRules(&out, []listedRule{{Rule: "bash: ls", Action: ruleFields{Permission: "bash"}.action("whitelist_actions")},
		{Rule: "deny bash: rm*", Action: ruleFields{Action: "deny"}.action("tool_permissions")},
		{Rule: "target src: /w/**", Action: ruleFields{}.action("whitelist_targets")}}))
	is.Equal(strings.Fields(out.String())[:3], []string{"ACTION", "RULE", "STATE"})
	for _, row := range []string{"allow  *bash: ls", "deny  *bash: rm", "-  *target src"} {
		is.True(regexp.MustCompile("(?m)^" + row).MatchString(out.String()))
	}
}
