package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/notes"
	"pocketcoder/ops/expect"
)

// A note goes from a file that the agent writes to the log, from a person's edit back to the file, and to the agent.
func TestAnAgentKeepsNotes(t *testing.T) {
	expect.Long(t, "has several turns")
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	agent := admin.create(t, "ai_agents", record{"name": "Rememberer"})
	for _, tool := range []string{"edit", "read"} {
		admin.create(t, "tool_permissions", record{"tool": tool, "pattern": "**", "action": "allow", "active": true,
			"agent": agent})
	}
	file := filepath.Join(notes.Folder(p.workspace, agent), "plan.md")
	text := func() string { body, _ := os.ReadFile(file); return string(body) }
	chat := admin.create(t, "chats", record{"title": "remember", "agent": agent})
	stored := func() string {
		list := admin.list(t, "agent_notes", `agent = "`+agent+`"`)
		if len(list) == 0 {
			return ""
		}
		return list[0]["content"].(string)
	}

	writes := call("write", map[string]any{"filePath": file, "content": "Tests are slow.\n"})
	admin.say(t, chat, writes+"\n@@next\n@@say done")
	p.turnEnds(t, chat)
	expect.Eventually(t, "the file is a note", func() bool { return stored() == "Tests are slow.\n" })
	_, stderr, code := runCommand(t, editWith("sed -i s/slow/fast/"), "", "note", "edit", "Rememberer", "plan",
		"--data", string(p.data))
	is.Equal([]any{stderr, code}, []any{"", 0})
	expect.Eventually(t, "the note is a file", func() bool { return text() == "Tests are fast.\n" })

	admin.say(t, chat, call("read", map[string]any{"filePath": file})+"\n@@next\n@@say done")
	p.turnEnds(t, chat)
	calls := p.tools(t, chat)
	expect.Contains(t, calls[len(calls)-1].State.Output, "Tests are fast.")

	stdout, _, _ := p.cli(t, "", "note", "versions", "Rememberer", "plan")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	is.Equal(len(lines), 3)
	first := strings.Fields(lines[2])
	expect.Contains(t, lines[2], "a file of the agent")
	_, stderr, code = p.cli(t, "", "note", "restore", "Rememberer", "plan", first[0])
	is.Equal([]any{stderr, code}, []any{"", 0})
	stdout, _, _ = p.cli(t, "", "note", "show", "Rememberer", "plan")
	is.Equal(stdout, "Tests are slow.\n")
	expect.Eventually(t, "the restored note is a file", func() bool { return text() == "Tests are slow.\n" })
	_, stderr, code = p.cli(t, "new\n", "note", "write", "Rememberer", "../x", "-")
	expect.Contains(t, stderr, "is not a name of a note")
	is.Equal(code, 2)
	_, _, code = p.cli(t, "", "note", "delete", "Rememberer", "plan")
	is.Equal(code, 0)
	expect.Eventually(t, "the file is removed", func() bool { return text() == "" })
	stdout, _, _ = p.cli(t, "", "note", "list", "Rememberer")
	expect.Contains(t, stdout, "the agent has no notes")
}
