package main

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// The command changes and refuses a proposal. One that changed after it was shown is not approved.
func TestProposalIsEditedAndDenied(t *testing.T) {
	t.Parallel()
	p := startAPI(t)
	is := is.New(t)
	admin := p.admin(t)
	proposal := admin.create(t, "proposals", record{"name": "Publish", "content": "Push to main.\n", "authored_by": "poco",
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
	expect.Contains(t, strings.Join(strings.Fields(stdout), " "), proposal+" procedure Publish denied")
	is.Equal(len(admin.list(t, "sops", "")), 0)
	_, stderr, code = p.cli(t, "", "procedure", "show", "none")
	expect.Contains(t, stderr, `there is no proposal "none"`)
	is.Equal(code, 1)
}

const procedure = "# How to write release notes\n\nList what users see, newest first.\n"

// proposedProcedureIsApproved has the model propose a procedure. A person's approval seals it.
func proposedProcedureIsApproved(t *testing.T, p *process) {
	t.Helper()
	is := is.New(t)
	admin := p.admin(t)
	chat := p.chat(t, ownTool("propose", map[string]any{"kind": "procedure", "name": "Release notes",
		"content": procedure}))
	expect.Contains(t, p.outputOf(t, chat, 0), "A person has to approve it.")
	for _, r := range rows[projections.Permission](t, p, "permissions", chat) { // asked, and allowed by a default rule
		is.Equal([]string{r.Permission, r.Status}, []string{"pocketcoder_propose", events.Authorized})
	}
	proposal := admin.list(t, "proposals", `name = "Release notes"`)[0]
	is.Equal([]any{proposal["status"], proposal["authored_by"], proposal["content"]}, []any{"draft", "poco", procedure})
	is.Equal(len(admin.list(t, "sops", "")), 0)
	id, definition := proposal["id"].(string), proposal["definition"].(string)
	shown, _, _ := p.cli(t, "", "procedure", "show", id)
	expect.Contains(t, shown, "+# How to write release notes\n")
	_, stderr, code := p.cli(t, "", "procedure", "approve", id, "00000000")
	expect.Contains(t, stderr, "does not have the definition")
	is.Equal(code, 1)
	_, stderr, code = p.cli(t, "", "procedure", "approve", id, definition[:8])
	is.Equal([]any{stderr, code}, []any{"", 0})
	expect.Eventually(t, "the proposal is sealed", func() bool { return len(admin.list(t, "sops", "")) == 1 })
	sealed := admin.list(t, "sops", "")[0]
	sum := sha256.Sum256([]byte(procedure))
	is.True(sealed["sealed_by"] != "" && sealed["sealed_at"] != "")
	is.Equal([]any{sealed["signature"], sealed["proposal"], sealed["description"]},
		[]any{hex.EncodeToString(sum[:]), id, "How to write release notes"})
}

// procedureIsASkill checks that OpenCode has the procedure that proposedProcedureIsApproved has sealed.
func procedureIsASkill(t *testing.T, p *process) {
	t.Helper()
	admin := p.admin(t)
	chat := p.chat(t, call("skill", map[string]any{"name": "release-notes"})+"\n@@next\n@@say done")
	admin.authorize(t, admin.awaitRequest(t, chat))
	p.turnEnds(t, chat)
	expect.Contains(t, p.tools(t, chat)[0].State.Output, "List what users see, newest first.")
}
