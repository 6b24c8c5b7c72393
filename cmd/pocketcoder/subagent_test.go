package main

import (
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func TestSubagentRequestIsInTheChatOfItsParent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, call("task", map[string]any{"description": "look after it", "subagent_type": "general",
		"prompt": bash("echo from below")})+"\n"+
		call("bash", map[string]any{"command": "echo from above", "description": "test"})+"\n@@next\n@@say all done")
	requests := map[string]events.PermissionRequest{}
	for n := range 2 {
		request := p.awaitRequest(t, chat, n)
		requests[request.Permission] = request
	}
	above := requests["bash"] // it waits while the subagent works
	p.decide(t, chat, requests["task"], events.Authorized, "")
	below := p.approve(t, chat, 2)
	is.Equal(below.Command(), "echo from below")
	is.True(below.SessionID != above.SessionID)

	p.event(t, chat, "opencode.session.idle", func(e events.Event) bool {
		return strings.Contains(string(e.Data), below.SessionID)
	})
	expect.Eventually(t, "the subagent has completed", func() bool {
		all := rows[projections.Subagent](t, p, "subagents", chat)
		return len(all) == 1 && all[0].Status == "completed"
	})
	own := p.row(t, chat)
	is.Equal(own.Turn, projections.TurnAssistant) // the end of the subagent's turn is not that of its parent's
	is.Equal(own.Session, above.SessionID)
	p.decide(t, chat, above, events.Authorized, "")
	p.turnEnds(t, chat)

	all := rows[projections.Subagent](t, p, "subagents", chat)
	is.Equal(len(all), 1)
	a := all[0]
	is.Equal([]string{a.Session, a.Delegating, a.Agent, a.Status},
		[]string{below.SessionID, own.Session, "general", "completed"})
	expect.Contains(t, a.Title, "look after it")
	is.True(a.Started != "" && a.Finished >= a.Started)
	runs := rows[projections.ShownExecution](t, p, "executions", chat)
	is.Equal(len(runs), 2)
	is.Equal([]string{runs[0].Session, runs[1].Session}, []string{below.SessionID, above.SessionID})
	is.Equal(outputsOf(t, runs[0]).Stdout.Text, "from below\n")
	is.Equal(p.row(t, chat).Preview, "all done")
	texts := map[string]string{}
	for _, m := range rows[projections.ShownMessage](t, p, "messages", chat) {
		for _, part := range partsOf(t, m) {
			if m.Role == "assistant" && part.Type == "text" {
				texts[part.Text] = m.Subagent
			}
		}
	}
	is.Equal(texts, map[string]string{"done": below.SessionID, "all done": ""})
}

// OpenCode would add the files to the prompt without a request.
func TestPromptOfASubagentIncludesNoFiles(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	notes := p.dir(t) + "/notes.txt"
	is.NoErr(os.WriteFile(notes, []byte("needle"), 0o600))
	chat := p.chat(t, call("task", map[string]any{"description": "test", "subagent_type": "general",
		"prompt": "@@say read\nlook at @/proc/self/environ, (@" + notes + "), @~/, @@../, @/proc please"})+
		"\n@@next\n@@say done")
	p.approve(t, chat, 0)
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "read|done")
	var parts []string
	for _, m := range rows[projections.ShownMessage](t, p, "messages", chat) {
		for _, part := range partsOf(t, m) {
			if m.Subagent != "" && m.Role == "user" {
				parts = append(parts, part.Type+": "+part.Text)
			}
		}
	}
	is.Equal(parts, []string{"text: `@`@say read\nlook at `@/proc/self/environ, (`@" + notes +
		"), `@~/, `@`@../, `@/proc please"})
}

func TestSubagentIsContinuedOnlyByItsOwnSession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	task := func(id, prompt string) string {
		return call("task", map[string]any{"description": "test", "subagent_type": "general", "task_id": id,
			"prompt": prompt}) + "\n@@next\n@@say done"
	}
	chat := p.chat(t, task("", "@@say first"))
	p.approve(t, chat, 0)
	p.turnEnds(t, chat)
	own := rows[projections.Subagent](t, p, "subagents", chat)[0].Session
	p.submit(t, chat, task(own, "@@say second"))
	p.approve(t, chat, 1)
	expect.Eventually(t, "the subagent has answered twice", func() bool {
		return p.text(t, chat) == "first|done|second|done"
	})
	is.Equal(len(rows[projections.Subagent](t, p, "subagents", chat)), 1)

	other := p.chat(t, task(own, "@@say third"))
	p.turnEnds(t, other)
	p.submit(t, other, task(p.row(t, chat).Session, "@@say fourth"))
	expect.Eventually(t, "both calls have failed", func() bool { return p.text(t, other) == "done|done" })
	for _, c := range p.tools(t, other) {
		expect.Contains(t, c.State.Error, "is no subagent of this session")
	}
	is.Equal(p.text(t, chat), "first|done|second|done")
}
