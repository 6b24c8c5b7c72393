package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/agent"
	"pocketcoder/ops/expect"
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

// editWith returns an environment with an editor.
func editWith(editor string) (getenv func(string) string) {
	return func(name string) string {
		if name == "EDITOR" {
			return editor
		}
		return os.Getenv(name)
	}
}

// One agent goes from a file to a record, and back to a file.
func TestAgentFileRoundTrip(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	run := func(args ...string) string {
		t.Helper()
		stdout, stderr, code := runCommand(t, editWith("sed -i s/every/each/"), "", append(args, "--data", string(p.data))...)
		if code != 0 {
			t.Fatalf("%v: %d %s%s", args, code, stdout, stderr)
		}
		return stdout
	}
	p.api.Provider(t, "demo", "demo")
	path := filepath.Join(t.TempDir(), "auditor.md")
	expect.WriteFile(t, path, auditor)
	expect.Contains(t, run("agent", "add", path), "created agent Auditor")
	expect.Contains(t, run("agent", "add", path), "agent Auditor is already as in the file")
	var agents []agent.Listed
	decode(t, run("agent", "list", "--json"), &agents)
	id := ""
	for _, a := range agents {
		if a.Name == "Auditor" {
			id = a.ID
			is.Equal(a, agent.Listed{ID: id, Name: "Auditor", Description: "Reads, and changes nothing", Model: "demo/demo",
				Rules: 2})
		}
	}
	is.Equal(run("agent", "show", "Auditor"), auditor)

	run("agent", "edit", "Auditor")
	stdout, _, code := p.cli(t, "", "agent", "add", path) // the file would undo the edit
	is.Equal(code, 1)
	expect.Contains(t, stdout, "-Read each file.\n+Read every file.\n")
	r := p.admin(t).do(t, "GET", "/api/agents/"+id+"/export", nil)
	is.Equal([]string{r.body, r.header.Get("Content-Disposition")},
		[]string{strings.Replace(auditor, "every", "each", 1), "attachment; filename=Auditor.md"})
}
