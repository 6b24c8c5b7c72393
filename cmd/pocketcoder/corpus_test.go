package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// permissionCase is a case of the corpus that the policy is tested with.
type permissionCase struct {
	ID         string
	RuleAction string `json:"rule_action"`
	RuleTarget string `json:"rule_target"`
	Permission string
	Subject    string                            `json:"command_or_path"`
	Expected   string                            // allow or ask
	ExtraRules []struct{ Action, Target string } `json:"extra_rules"`
}

// firstCases returns the first case of each tool and expectation.
func firstCases(t *testing.T, tools ...string) (cases []permissionCase) {
	t.Helper()
	f, err := os.Open("../../handlers/policy/testdata/permission_cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var c permissionCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if key := c.Permission + "/" + c.Expected; slices.Contains(tools, c.Permission) && c.Subject != "" && !seen[key] {
			seen[key] = true
			cases = append(cases, c)
		}
	}
	return cases
}

// Each tool of the real OpenCode gets the same answers as the policy alone. The package handlers/policy tests all cases
// with the policy alone.
func TestCorpusThroughTheRealTools(t *testing.T) {
	expect.Long(t, "has many turns")
	t.Parallel()
	p := unconfinedSystem.system(t) // a confined OpenCode is refused some of them before the gate is asked
	admin := p.admin(t)
	here := strings.NewReplacer("/workspace", p.workspace)
	cases := firstCases(t, "bash", "write", "read", "webfetch", "task")
	is.New(t).True(len(cases) > 7)
	for _, name := range []string{"main.go", "README.md"} { // what is read must be there
		is.New(t).NoErr(os.WriteFile(filepath.Join(p.workspace, name), []byte("x\n"), 0o600))
	}
	for _, c := range cases {
		t.Run(c.ID+" "+c.Expected, func(t *testing.T) {
			is := is.New(t)
			if c.Permission == "webfetch" && c.Expected == "allow" {
				c.RuleTarget, c.Subject = p.HTTP+"/*", p.HTTP+"/api/health" // tests reach nothing else
			}
			chat := admin.create(t, "chats", record{"title": c.ID})
			rules := append([]struct{ Action, Target string }{{c.RuleAction, c.RuleTarget}}, c.ExtraRules...)
			for _, r := range rules {
				made := admin.do(t, "POST", "/api/collections/tool_permissions/records",
					record{"tool": r.Action, "pattern": here.Replace(r.Target), "action": "allow", "active": true, "chat": chat})
				is.True(made.code == http.StatusOK || c.Expected == "ask") // a rule that could match nothing is refused
			}
			admin.say(t, chat, toolCall(c, here.Replace(c.Subject))+"\n@@next\n@@say done")
			if c.Expected == "allow" {
				p.turnEnds(t, chat)
				for _, a := range rows[projections.Permission](t, p, "permissions", chat) {
					is.Equal([]string{a.Status, a.DecidedBy}, []string{events.Authorized, "policy"}) // a.Permission
				}
				if c.Permission == "bash" {
					is.Equal(len(admin.list(t, "executions", `chat = "`+chat+`"`)), 1)
				}
				return
			}
			var draft record
			expect.Eventually(t, "the policy leaves it to a person", func() bool {
				drafts := admin.list(t, "permissions", `chat = "`+chat+`" && status = "draft" && referred_reason != ""`)
				if len(drafts) > 0 {
					draft = drafts[0]
				}
				return len(drafts) > 0
			})
			admin.must(t, "PATCH", recordPath("permissions", draft["id"].(string)), record{"status": "denied"}, nil)
			p.turnEnds(t, chat)
			is.Equal(len(admin.list(t, "executions", `chat = "`+chat+`"`)), 0)
		})
	}
}

// toolCall is the call of OpenCode's tool that the case is about.
func toolCall(c permissionCase, subject string) string {
	switch c.Permission {
	case "write":
		return call("write", map[string]any{"filePath": subject, "content": "x"})
	case "read":
		return call("read", map[string]any{"filePath": subject})
	case "webfetch":
		return call("webfetch", map[string]any{"url": subject, "format": "text"})
	case "task":
		return call("task", map[string]any{"description": "d", "prompt": "@@say hello", "subagent_type": subject})
	}
	return call("bash", map[string]any{"command": subject, "description": "d"})
}
