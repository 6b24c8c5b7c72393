package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

func TestModelUsesOnlyApprovedSkillsAndMCPServers(t *testing.T) {
	t.Parallel()
	p := startInside(t)
	runStages(t, p, stage{"a proposal is edited and denied", proposalIsEditedAndDenied},
		stage{"an approved proposal becomes a skill", approvedProposalBecomesASkill},
		stage{"a skill that was changed on disk is a proposal", skillThatWasChangedOnDiskIsAProposal})
	buildMCPServer(t, filepath.Join(p.workspace, "lab"))
	runStages(t, p, stage{"a server in the sandbox", callsServerInSandbox},
		stage{"a server with hosts", callsServerWithHosts}, stage{"a server from npm", callsServerFromNPM},
		stage{"a remote server", callsRemoteServer})
}

// The command changes and refuses a proposal. One that changed after it was shown is not approved.
func proposalIsEditedAndDenied(t *testing.T, p *process) {
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

// An approved proposal is sealed, and becomes a skill of OpenCode.
func approvedProposalBecomesASkill(t *testing.T, p *process) {
	is := is.New(t)
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
	definition := admin.list(t, "proposals", `id = "`+proposal+`"`)[0]["definition"].(string)
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

// A skill that a person changes on disk is a proposal at the next start. OpenCode gets the approved text.
func skillThatWasChangedOnDiskIsAProposal(t *testing.T, p *process) {
	is := is.New(t)
	admin := p.admin(t)
	file := func(skill string) string {
		return p.data.Path("opencode", "config", "opencode", "skill", skill, "SKILL.md")
	}
	first := admin.create(t, "proposals", record{"name": "Deploy", "content": "Push to main.\n", "authored_by": "human",
		"status": "draft"})
	is.Equal(admin.do(t, "PATCH", "/api/collections/proposals/records/"+first, record{"status": "approved"}).code, 200)
	var deploy, notes string
	expect.Eventually(t, "the skills are written", func() bool {
		deploy, notes = expect.ReadFile(t, file("deploy")), expect.ReadFile(t, file("release-notes"))
		return strings.HasSuffix(deploy, "Push to main.\n") && strings.HasSuffix(notes, "newest first.\n")
	})
	startAgain := func(changedNotes string) (list string) {
		t.Helper()
		p.stop()
		expect.WriteFile(t, file("deploy"), strings.ReplaceAll(deploy, "Push to main.", "Push to release."))
		expect.WriteFile(t, file("release-notes"), changedNotes)
		p.restart()
		is.Equal(expect.ReadFile(t, file("deploy")), deploy)
		is.Equal(expect.ReadFile(t, file("release-notes")), notes)
		list, _, _ = p.cli(t, "", "procedure", "list")
		return list
	}
	changed := func() (all []record) { return admin.list(t, "proposals", "authored_by='human' && status!='approved'") }

	list := startAgain("---\nname: [release\n---\nUnreadable.\n") // it does not stop the start
	expect.Contains(t, list, "could not be proposed; the text is kept in ")
	expect.Contains(t, admin.do(t, "GET", "/api/health", nil).body, "the text is kept in ")
	drafts := changed()
	is.Equal(len(drafts), 1)
	is.Equal([]any{drafts[0]["name"], drafts[0]["content"], drafts[0]["status"]},
		[]any{"Deploy", "Push to release.\n", "draft"})
	denied := drafts[0]["id"].(string)
	_, stderr, code := p.cli(t, "", "procedure", "deny", denied)
	is.Equal([]any{stderr, code}, []any{"", 0})
	expect.WriteFile(t, file("deploy"), "changed")
	list, _, _ = p.cli(t, "", "procedure", "list")
	expect.Contains(t, list, "sealed, changed on disk; the next start")

	startAgain(strings.Replace(notes, `description: "How to write release notes"`, "description: What users see", 1))
	drafts = slices.DeleteFunc(changed(), func(r record) bool { return r["id"] == denied })
	is.Equal(len(drafts), 1) // the denied text is not proposed again
	is.Equal([]any{drafts[0]["name"], drafts[0]["description"]}, []any{"Release notes", "What users see"})
	stdout, _, _ := p.cli(t, "", "procedure", "show", drafts[0]["id"].(string))
	expect.Contains(t, stdout, "-description: How to write release notes\n+description: What users see\n")
	definition := admin.list(t, "proposals", `id = "`+denied+`"`)[0]["definition"].(string)
	_, stderr, code = p.cli(t, "", "procedure", "approve", denied, definition)
	is.Equal([]any{stderr, code}, []any{"", 0})
	expect.Eventually(t, "the changed skill is written", func() bool {
		return strings.HasSuffix(expect.ReadFile(t, file("deploy")), "\n\nPush to release.\n")
	})
}
