package main

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/console"
	"pocketcoder/events"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
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

// TestModelCannotChooseTheCallerOfATool lets the model send a caller of its own, which the plugin replaces.
func TestModelCannotChooseTheCallerOfATool(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, ownTool("mcp_status", map[string]any{"caller": "forged.caller"}))
	is.Equal(p.outputOf(t, chat, 0), `{"servers":[]}`)
	is.Equal(p.text(t, chat), "done")
}

// At this level pocketcoder-shell reaches the bridge over TCP, not over a Unix socket.
func TestCommandsAndOwnToolsWorkAtLandlock(t *testing.T) {
	expect.Long(t, "starts a system of its own")
	t.Parallel()
	is := is.New(t)
	p := startInside(t, "--isolation", "landlock")
	run, call := p.runCommand(t, map[string]any{"command": "echo one; exit 3"})
	is.Equal([]any{run.Isolation, run.ExitCode, call.State.Status}, []any{"landlock", int64(3), "completed"})
	is.Equal(outputsOf(t, run).Stdout.Text, "one\n")
	is.Equal(p.outputOf(t, p.chat(t, ownTool("mcp_status", map[string]any{})), 0), `{"servers":[]}`)
}

func TestOwnToolsWorkWithoutIsolation(t *testing.T) {
	t.Parallel()
	p := unconfinedSystem.system(t)
	is.New(t).Equal(p.outputOf(t, p.chat(t, ownTool("mcp_status", map[string]any{})), 0), `{"servers":[]}`)
}

var colourQuestion = call("pocketcoder_ask_person", map[string]any{
	"question": "Which colour?", "options": []string{"Red", "Blue"},
}) + "\n@@next\n@@say thanks"

// awaitPersonQuestion waits for the question of ask_person in a chat.
func (p *process) awaitPersonQuestion(t testing.TB, chat string) projections.Question {
	t.Helper()
	p.event(t, chat, events.QuestionRequested{}.Kind(), nil)
	asked := rows[projections.Question](t, p, "questions", chat)
	return asked[len(asked)-1]
}

func TestModelAsksAPersonAndWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, colourQuestion)
	q := p.awaitPersonQuestion(t, chat)
	is.Equal([]string{q.Question, string(q.Choices), q.Status},
		[]string{"Which colour?", `["Red","Blue"]`, projections.QuestionAsked})
	stdout, _, code := p.cli(t, "2\n", "chat", chat)
	is.Equal(code, console.Completed)
	expect.Contains(t, stdout, "Which colour?")
	is.Equal(p.outputOf(t, chat, 0), "Blue")
	is.Equal(p.text(t, chat), "thanks")
	is.True(rows[projections.Question](t, p, "questions", chat)[0].EngineReplied)
	is.Equal(len(p.resumes(t, chat)), 0)

	p.submit(t, chat, colourQuestion)
	expect.Eventually(t, "the question is asked again", func() bool {
		asked := rows[projections.Question](t, p, "questions", chat)
		q = asked[len(asked)-1]
		return len(asked) == 2
	})
	is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: q.EngineQuestion, Rejected: true}))
	expect.Contains(t, p.outputOf(t, chat, 1), "does not want to answer")
	is.Equal(p.text(t, chat), "thanks|thanks") // the model goes on
}
