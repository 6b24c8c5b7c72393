package main

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func TestProviderThatFailsFailsTheMessageUnlessItRecovers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, "@@header Retry-After: 1\n@@failfirst 1 500 flaky\n@@say recovered")
	retry := p.event(t, chat, "opencode.session.status", func(e events.Event) bool {
		return strings.Contains(string(e.Data), `"retry"`)
	})
	expect.Contains(t, string(retry.Data), "flaky")
	p.turnEnds(t, chat)
	answers := rows[projections.ShownMessage](t, p, "messages", chat)
	is.Equal(len(answers), 2)
	is.Equal([]string{answers[1].EngineStatus, answers[1].ErrorDomain}, []string{"completed", ""})
	is.Equal(p.text(t, chat), "recovered")

	p.submit(t, chat, "@@status 400 the model is on holiday")
	p.turnEnds(t, chat)
	answer := rows[projections.ShownMessage](t, p, "messages", chat)[3]
	is.Equal([]string{answer.EngineStatus, answer.ErrorDomain}, []string{"failed", "provider"})
	expect.Contains(t, string(answer.ErrorPayload), "the model is on holiday")
	p.submit(t, chat, "@@say back")
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "recovered|back")
}
