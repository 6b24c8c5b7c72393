package main

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/console/turn"
	"pocketcoder/events"
	"pocketcoder/expect"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/projections"
	"pocketcoder/projections/questions"
)

// ownTool is a script that calls a tool of PocketCoder's own MCP server and says done.
func ownTool(name string, args map[string]any) string {
	return call("pocketcoder_"+name, args) + "\n@@next\n@@say done"
}

// outputOf waits for the end of the turn and returns the output of its n-th tool call.
func (p *process) outputOf(t testing.TB, chat string, n int) string {
	t.Helper()
	p.turnEnds(t, chat)
	calls := p.tools(t, chat)
	if len(calls) <= n {
		t.Fatalf("chat %s has %d calls", chat, len(calls))
	}
	return calls[n].State.Output + calls[n].State.Error
}

func TestModelsProposalWaitsForAPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, ownTool("propose", map[string]any{"kind": "procedure", "name": "release notes", "content": "# How"}))
	expect.Contains(t, p.outputOf(t, chat, 0), "A person has to approve it.")
	shown := p.admin(t).list(t, "proposals", `name = "release notes"`)
	is.Equal(len(shown), 1)
	is.Equal([]any{shown[0]["status"], shown[0]["authored_by"], shown[0]["content"]}, []any{"draft", "poco", "# How"})
	for _, r := range rows[projections.Permission](t, p, "permissions", chat) { // asked, and allowed by a default rule
		is.Equal([]string{r.Permission, r.Status}, []string{"pocketcoder_propose", projections.PermissionAuthorized})
	}
	is.Equal(p.text(t, chat), "done")
}

// An agent and a prompt that the model proposes are stored once an administrator approves them. The rights of the agent
// are named one by one.
func TestModelsAgentAndPromptAreApproved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	const file = "---\nname: Releaser\npermission:\n  bash:\n    git tag*: allow\n---\n\nRelease.\n"
	propose := func(kind, name, content string) string {
		return p.outputOf(t, p.chat(t, ownTool("propose", map[string]any{"kind": kind, "name": name, "content": content})), 0)
	}
	expect.Contains(t, propose("agent", "Another", file), `The proposal is named "Another", but its front matter names "Releaser".`)
	expect.Contains(t, propose("rule", "x", "y"), "Use procedure, agent or prompt.")
	expect.Contains(t, propose("agent", "Releaser", file), "A person has to approve it.")
	expect.Contains(t, propose("prompt", "Tone", "Be brief."), "A person has to approve it.")
	for _, name := range []string{"Releaser", "Tone"} {
		id := admin.list(t, "proposals", `name = "`+name+`"`)[0]["id"].(string)
		shown, stderr, code := p.cli(t, "", "procedure", "approve", id)
		is.Equal(code, 1) // nothing is approved without the definition
		if name == "Releaser" {
			expect.Contains(t, shown, "new right    allows bash: git tag*\n")
		}
		_, definition, _ := strings.Cut(strings.TrimSpace(stderr), "approve "+id+" ")
		_, stderr, code = p.cli(t, "", "procedure", "approve", id, definition)
		is.Equal([]any{stderr, code}, []any{"", 0})
	}
	expect.Eventually(t, "the agent and the prompt are stored", func() bool {
		return len(admin.list(t, "ai_agents", `name = "Releaser"`)) == 1 &&
			len(admin.list(t, "ai_prompts", `name = "Tone"`)) == 1
	})
	stdout, _, _ := p.cli(t, "", "agent", "show", "Releaser")
	expect.Contains(t, stdout, "git tag*: allow")
	rules := admin.list(t, "tool_permissions", `pattern = "git tag*"`)
	is.Equal([]any{len(rules), rules[0]["author"] != ""}, []any{1, true})
}

// TestModelCannotChooseTheCallerOfATool lets the model send a caller of its own, which the plugin replaces.
func TestModelCannotChooseTheCallerOfATool(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, ownTool("mcp_status", map[string]any{"caller": "forged.caller"}))
	is.Equal(p.outputOf(t, chat, 0), `{"servers":[]}`)
	is.Equal(p.text(t, chat), "done")
}

func TestCommandsAndOwnToolsWorkAtLandlock(t *testing.T) {
	t.Parallel()
	runStages(t, startInside(t, "--isolation", "landlock"), stage{"a command runs", commandRunsAtLandlock},
		stage{"own tools work", ownToolsWork})
}

func TestOwnToolsWorkWithoutIsolation(t *testing.T) {
	t.Parallel()
	p := unconfinedSystem.system(t)
	is.New(t).Equal(p.outputOf(t, p.chat(t, ownTool("mcp_status", map[string]any{})), 0), `{"servers":[]}`)
}

// commandRunsAtLandlock checks that pocketcoder-shell reaches the bridge over TCP, not over a Unix socket.
func commandRunsAtLandlock(t *testing.T, p *process) {
	is := is.New(t)
	run, call := p.runCommand(t, map[string]any{"command": "echo one; exit 3"})
	is.Equal([]any{run.Isolation, run.ExitCode, call.State.Status}, []any{"landlock", int64(3), "completed"})
	is.Equal(outputsOf(t, run).Stdout.Text, "one\n")
}

// ownToolsWork uses them again after OpenCode was killed, because its next start has secrets of its own.
func ownToolsWork(t *testing.T, p *process) {
	is := is.New(t)
	chat := p.chat(t, ownTool("mcp_status", map[string]any{}))
	is.Equal(p.outputOf(t, chat, 0), `{"servers":[]}`)
	killOpenCode(t, p)
	p.submit(t, chat, ownTool("mcp_status", map[string]any{}))
	expect.Eventually(t, "the second call is answered", func() bool { return p.text(t, chat) == "done|done" })
	is.Equal(p.outputOf(t, chat, 1), `{"servers":[]}`)
}

var colourQuestion = call("pocketcoder_ask_person", map[string]any{
	"question": "Which colour?", "options": []string{"Red", "Blue"},
}) + "\n@@next\n@@say thanks"

// awaitPersonQuestion waits for the question of ask_person in a chat.
func (p *process) awaitPersonQuestion(t testing.TB, chat string) questions.Question {
	t.Helper()
	p.event(t, chat, events.QuestionRequested{}.Kind(), nil)
	asked := rows[questions.Question](t, p, "questions", chat)
	return asked[len(asked)-1]
}

func TestModelAsksAPersonAndWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, colourQuestion)
	q := p.awaitPersonQuestion(t, chat)
	is.Equal([]string{q.Question, string(q.Choices), q.Status},
		[]string{"Which colour?", `["Red","Blue"]`, questions.Asked})
	shown := p.admin(t).list(t, "questions", `chat = "`+chat+`"`)[0]
	p.admin(t).must(t, "PATCH", recordPath("questions", shown["id"].(string)),
		record{"status": "replied", "reply": "Blue"}, nil)
	is.Equal(p.outputOf(t, chat, 0), "Blue")
	is.Equal(p.text(t, chat), "thanks")
	is.True(rows[questions.Question](t, p, "questions", chat)[0].EngineReplied)
	is.Equal(len(p.resumes(t, chat)), 0)

	refused := p.chat(t, colourQuestion)
	q = p.awaitPersonQuestion(t, refused)
	is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: refused, Question: q.EngineQuestion, Rejected: true}))
	expect.Contains(t, p.outputOf(t, refused, 0), "does not want to answer")
	is.Equal(p.text(t, refused), "thanks") // the model goes on

	aborted := p.chat(t, colourQuestion)
	p.awaitPersonQuestion(t, aborted)
	p.abort(t, aborted)
	p.event(t, aborted, "question.expired", nil)
	p.turnEnds(t, aborted)
	is.Equal(rows[questions.Question](t, p, "questions", aborted)[0].Reason, "the turn was aborted")
}

func TestTerminalShowsAndAnswersAskPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, colourQuestion)
	p.awaitPersonQuestion(t, chat)
	stdout, _, code := p.cli(t, "2\n", "chat", chat)
	is.Equal(code, turn.Completed)
	expect.Contains(t, stdout, "Which colour?")
	is.Equal(p.outputOf(t, chat, 0), "Blue")
}
