package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/handlers/agentfile"
)

const auditor = `---
name: Auditor
description: Reads, and changes nothing
model: demo/demo
permission:
  bash:
    '*': ask
    echo audited: allow
    touch *: deny
---

Read every file.
`

// One agent goes from a file to a chat, and back to a file.
func TestAgentFileRoundTrip(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	run := func(env []string, stdin string, args ...string) string {
		t.Helper()
		stdout, stderr, code := runProgram(t, env, stdin, append(args, "--data", string(p.data))...)
		if code != 0 {
			t.Fatalf("%v: %d %s%s", args, code, stdout, stderr)
		}
		return stdout
	}
	path := filepath.Join(t.TempDir(), "auditor.md")
	expect.WriteFile(t, path, auditor)
	expect.Contains(t, run(nil, "", "agent", "add", path), "created agent Auditor")
	expect.Contains(t, run(nil, "", "agent", "add", path), "agent Auditor is already as in the file")
	var agents []agentfile.Listed
	decode(t, run(nil, "", "agent", "list", "--json"), &agents)
	id := ""
	for _, a := range agents {
		if a.Name == "Auditor" {
			id = a.ID
			is.Equal(a, agentfile.Listed{ID: id, Name: "Auditor", Description: "Reads, and changes nothing", Model: "demo/demo",
				Rules: 2})
		}
	}
	is.Equal(run(nil, "", "agent", "show", "Auditor"), auditor)

	s := p.startConversation(t)
	s.awaitText("› ")
	s.typeText("/agent nosuch\r")
	s.awaitText(`there is no agent "nosuch"; available: `)
	s.typeText("/agent Auditor\r")
	s.awaitText("agent of the next messages: Auditor")
	s.typeText(`@@call bash {"command":"touch audited.txt","description":"test"}` + "\r")
	s.awaitText("deny bash: touch *")
	s.typeText("/agent\r")
	s.awaitText("* Auditor")
	s.typeText("/agent none\r")
	s.awaitText("agent of the next messages: none")
	s.typeText("/quit\r")
	s.awaitExit()

	run([]string{"EDITOR=sed -i s/every/each/"}, "", "agent", "edit", "Auditor")
	stdout, _, code := p.cli(t, "", "agent", "add", path) // the file would undo the edit
	is.Equal(code, 1)
	expect.Contains(t, stdout, "-Read each file.\n+Read every file.\n")
	admin := p.admin(t)
	r := admin.do(t, "GET", "/api/agents/"+id+"/export", nil)
	is.Equal([]string{r.body, r.header.Get("Content-Disposition")},
		[]string{strings.Replace(auditor, "every", "each", 1), "attachment; filename=Auditor.md"})
	b := p.openBrowser(t, phoneScreen)
	b.visit("/settings/ai_agents")
	is.True(evaluate[bool](b, `document.querySelector('a[href="/api/agents/`+id+`/export"][download]') !== null`))
}
