package main

import (
	"encoding/json"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/notes"
)

func TestPersonChoosesTheAgentOfAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	prompt := admin.create(t, "ai_prompts", record{"name": "review", "body": "Review <every> line."})
	agent := admin.create(t, "ai_agents", record{"name": "Reviewer", "prompt": prompt})
	admin.create(t, "tool_permissions", record{"tool": "bash", "pattern": "touch *",
		"action": "deny", "active": true, "agent": agent})
	chat := admin.create(t, "chats", record{"title": "review"})
	command := bash("touch reviewed.txt")

	admin.say(t, chat, command)
	admin.authorize(t, admin.awaitRequest(t, chat)) // the rule is for the agent alone
	p.turnEnds(t, chat)

	admin.must(t, "PATCH", recordPath("chats", chat), record{"agent": agent}, nil)
	admin.say(t, chat, command)
	p.turnEnds(t, chat)
	requests := admin.list(t, "permissions", `chat = "`+chat+`"`)
	is.Equal(len(requests), 2)
	is.Equal([]any{requests[1]["status"], requests[1]["rule"]}, []any{"denied", "deny bash: touch *"})
	answers := admin.list(t, "messages", `chat = "`+chat+`" && role = "assistant"`)
	is.Equal([]any{answers[0]["agent"], answers[len(answers)-1]["agent"]}, []any{"build", "Reviewer"})

	var systems []string // of each turn, as OpenCode had it
	for _, e := range p.history(t, chat) {
		var m struct{ Info struct{ Role, System string } }
		if e.Subject.Kind == "opencode.message.updated" && json.Unmarshal(e.Data, &m) == nil && m.Info.Role == "user" {
			systems = append(systems, m.Info.System)
		}
	}
	is.Equal(systems[0], `<context chat="review" person="admin" workspace="`+p.workspace+`"/>`)
	is.Equal(systems[len(systems)-1], "Review <every> line.\n\n"+
		"Your notes are the Markdown files in "+notes.Folder(p.workspace, agent)+
		". Read them when a task begins, and write there what you want to remember.\n\n"+
		`<context chat="review" person="admin" agent="Reviewer" workspace="`+p.workspace+`"/>`)
}
