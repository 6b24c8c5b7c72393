package main

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/projections"
)

func TestSubagentAsksInTheChatOfItsParent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, strings.Join([]string{
		call("task", map[string]any{"description": "look after it", "subagent_type": "general", "prompt": bash("echo from below")}),
		call("bash", map[string]any{"command": "echo from above", "description": "test"}),
		"@@say all done",
	}, "\n@@next\n"))
	is.Equal(p.approve(t, chat, 0).Permission, "task")
	below := p.approve(t, chat, 1)
	is.Equal(below.Command(), "echo from below")

	above := p.ask(t, chat, 2) // the subagent is done by now, its parent is not
	own := p.row(t, chat)
	is.Equal(own.Turn, projections.TurnAssistant) // which the subagent's end has not changed
	is.Equal(own.Session, above.SessionID)
	is.True(below.SessionID != above.SessionID)
	p.approve(t, chat, 2)
	p.turnEnds(t, chat)

	all := rows[projections.Subagent](t, p, "subagents", chat)
	is.Equal(len(all), 1)
	a := all[0]
	is.Equal([]string{a.Session, a.Delegating, a.Agent, a.Status}, []string{below.SessionID, own.Session, "general", "completed"})
	is.True(strings.Contains(a.Title, "look after it"))
	is.True(a.Started != "" && a.Finished >= a.Started)
	runs := rows[projections.Run](t, p, "executions", chat)
	is.Equal(len(runs), 2)
	is.Equal([]string{runs[0].Session, runs[1].Session}, []string{below.SessionID, above.SessionID})
	is.Equal(outputsOf(t, runs[0]).Stdout.Text, "from below\n")
	is.Equal(p.row(t, chat).Preview, "all done")
	said := map[string]string{}
	for _, m := range rows[projections.ShownMessage](t, p, "messages", chat) {
		for _, part := range partsOf(t, m) {
			if m.Role == "assistant" && part.Type == "text" {
				said[part.Text] = m.Subagent
			}
		}
	}
	is.Equal(said, map[string]string{"done": below.SessionID, "all done": ""})
}
