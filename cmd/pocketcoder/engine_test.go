package main

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	opencode "pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func lostTurnsContinue(t *testing.T, p *process) (after func(*testing.T, *process)) {
	// the answer lasts longer than the preparation of the other checks
	streaming, waiting := p.chat(t, "@@text n=4000 delay=50"), p.chat(t, bash("echo approved late"))
	request := p.awaitRequest(t, waiting, 0)
	expect.Eventually(t, "some text was streamed", func() bool {
		return len(p.fragments(t, "delta.chat."+streaming+".>")) > 3
	})
	_, pid := p.engine(t)
	return func(t *testing.T, p *process) { lostTurnsContinued(t, p, streaming, waiting, request, pid) }
}

func lostTurnsContinued(t *testing.T, p *process, streaming, waiting string, request events.PermissionRequest,
	pid int) {
	is := is.New(t)
	expect.Eventually(t, "health says that OpenCode is away", func() bool { return p.health(t).code == 503 })
	p.submit(t, streaming, "@@say first") // while it is down
	p.submit(t, streaming, "@@say second")

	p.event(t, streaming, "turn.lost", nil)
	p.turnEnds(t, streaming)
	answers := rows[projections.ShownMessage](t, p, "messages", streaming)
	is.Equal(answers[1].EngineStatus, "failed")
	is.Equal(answers[1].ErrorDomain, "infrastructure")
	is.Equal(delivered(t, p, streaming), submitted(t, p, streaming)) // each once, in order
	is.True(strings.HasSuffix(p.text(t, streaming), "|first|second"))

	p.event(t, waiting, "turn.lost", nil)
	p.event(t, waiting, "permission.interrupted", nil)
	p.decide(t, waiting, request, events.Authorized, "") // it resumes the turn, and is used up by the same request
	p.finished(t, waiting, 0)
	p.turnEnds(t, waiting)
	runs := rows[projections.ShownExecution](t, p, "executions", waiting)
	is.Equal(len(runs), 1)
	is.Equal(outputsOf(t, runs[0]).Stdout.Text, "approved late\n")

	_, newer := p.engine(t)
	is.True(newer != pid)
	is.Equal(p.health(t).code, 200)
}

func TestSessionMadeInOpenCodeBecomesAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	api, _ := p.engine(t)
	s, err := api.CreateSession(t.Context(), opencode.NewSession{Directory: p.workspace, Title: "made elsewhere"})
	is.NoErr(err)
	is.NoErr(api.Prompt(t.Context(), s.ID, opencode.Prompt{
		MessageID: opencode.NewID("msg", time.Now()), Parts: []opencode.PromptPart{{ID: opencode.NewID("prt", time.Now()), Type: "text", Text: bash("echo adopted")}},
	}))
	var chat string
	expect.Eventually(t, "the session is adopted", func() bool {
		for _, c := range rows[projections.Chat](t, p, "chats", "") {
			if c.Session == s.ID {
				chat = c.ID
			}
		}
		return chat != ""
	})
	p.approve(t, chat, 0)
	p.finished(t, chat, 0)
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "done")
	c := p.row(t, chat)
	is.True(c.Adopted)
	is.Equal(c.Title, "made elsewhere")
	is.Equal(outputsOf(t, rows[projections.ShownExecution](t, p, "executions", chat)[0]).Stdout.Text, "adopted\n")
	p.submit(t, chat, "@@say from here") // and the conversation continues from here
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "done|from here")
}
