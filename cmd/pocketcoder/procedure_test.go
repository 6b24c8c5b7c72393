package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
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
	r := admin.do(t, "PATCH", "/api/collections/proposals/records/"+proposal, record{"status": "approved"})
	is.Equal(r.code, 200)
	expect.Eventually(t, "the proposal is sealed", func() bool { return len(admin.list(t, "sops", "")) == 1 })
	sealed := admin.list(t, "sops", "")[0]
	sum := sha256.Sum256([]byte(content))
	is.Equal([]any{sealed["signature"], sealed["sealed_by"], sealed["proposal"], sealed["description"]},
		[]any{hex.EncodeToString(sum[:]), admin.id, proposal, "How to write release notes"})
	is.True(sealed["sealed_at"] != "")
	expect.Eventually(t, "OpenCode is started again", func() bool { return pid() != 0 && pid() != before })
	chat := p.chat(t, call("skill", map[string]any{"name": "release-notes"})+"\n@@next\n@@say done")
	admin.authorize(t, admin.awaitRequest(t, chat))
	p.turnEnds(t, chat)
	expect.Contains(t, p.tools(t, chat)[0].State.Output, "List what users see, newest first.")
}
