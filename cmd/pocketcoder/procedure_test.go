package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

// An approved proposal is sealed, and becomes a skill of OpenCode.
func TestAnApprovedProposalBecomesASkill(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := start(t)
	admin := p.admin(t)
	pid := func() (running int) { // 0 while OpenCode is started again
		var file struct{ PID int }
		body, _ := os.ReadFile(p.data.Path("opencode", "pid"))
		_ = json.Unmarshal(body, &file)
		return file.PID
	}
	before := pid()
	const content = "# How to write release notes\n\nList what users see, newest first.\n"
	proposal := admin.create(t, "proposals", record{"name": "Release notes", "content": content, "authored_by": "poco",
		"status": "draft"})
	is.Equal(len(admin.list(t, "sops", "")), 0)
	shown, _, _ := p.cli(t, "", "procedure", "show", proposal)
	expect.Contains(t, shown, "+# How to write release notes\n")
	definition := admin.list(t, "proposals", "")[0]["definition"].(string)
	_, stderr, code := p.cli(t, "", "procedure", "approve", proposal, "00000000")
	expect.Contains(t, stderr, "does not have the definition")
	is.Equal(code, 1)
	_, stderr, code = p.cli(t, "", "procedure", "approve", proposal, definition[:8])
	is.Equal([]any{stderr, code}, []any{"", 0})
	expect.Eventually(t, "the proposal is sealed", func() bool { return len(admin.list(t, "sops", "")) == 1 })
	sealed := admin.list(t, "sops", "")[0]
	sum := sha256.Sum256([]byte(content))
	is.True(sealed["sealed_by"] != "")
	is.Equal([]any{sealed["signature"], sealed["proposal"], sealed["description"]},
		[]any{hex.EncodeToString(sum[:]), proposal, "How to write release notes"})
	is.True(sealed["sealed_at"] != "")
	expect.Eventually(t, "OpenCode is started again", func() bool { return pid() != 0 && pid() != before })
	chat := p.chat(t, call("skill", map[string]any{"name": "release-notes"})+"\n@@next\n@@say done")
	admin.authorize(t, admin.awaitRequest(t, chat))
	p.turnEnds(t, chat)
	expect.Contains(t, p.tools(t, chat)[0].State.Output, "List what users see, newest first.")
}

// The command changes and refuses a proposal. One that changed after it was shown is not approved.
func TestAProposalIsEditedAndDenied(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := start(t)
	admin := p.admin(t)
	proposal := admin.create(t, "proposals", record{"name": "Deploy", "content": "Push to main.\n", "authored_by": "poco",
		"status": "draft"})
	shown := admin.list(t, "proposals", "")[0]["definition"].(string)
	_, stderr, code := p.cli(t, "Open a merge request.\n", "procedure", "edit", proposal, "-")
	is.Equal([]any{stderr, code}, []any{"", 0})
	_, stderr, code = p.cli(t, "", "procedure", "approve", proposal, shown)
	expect.Contains(t, stderr, "does not have the definition")
	is.Equal(code, 1)
	stdout, stderr, code := p.cli(t, "", "procedure", "approve", proposal)
	expect.Contains(t, stdout, "+Open a merge request.\n")
	expect.Contains(t, stderr, "nothing is approved yet")
	is.Equal(code, 1)
	_, stderr, code = p.cli(t, "", "procedure", "deny", proposal)
	is.Equal([]any{stderr, code}, []any{"", 0})
	stdout, _, _ = p.cli(t, "", "procedure", "list")
	expect.Contains(t, strings.Join(strings.Fields(stdout), " "), proposal+" Deploy denied")
	is.Equal(len(admin.list(t, "sops", "")), 0)
	_, stderr, code = p.cli(t, "", "procedure", "show", "none")
	expect.Contains(t, stderr, `there is no proposal "none"`)
	is.Equal(code, 1)
}
