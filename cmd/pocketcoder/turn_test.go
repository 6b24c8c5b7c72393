package main

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

const echo = `@@call bash {"command":"echo hello; echo oops >&2; exit 3","description":"greet"}
@@next
@@say done`

func TestApprovedCommandRunsInTheSandbox(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, echo)
	request := p.awaitRequest(t, chat, 0)
	is.Equal(request.Command(), "echo hello; echo oops >&2; exit 3")
	p.decide(t, chat, request, events.Authorized, "")
	p.turnEnds(t, chat)

	runs := rows[projections.ShownExecution](t, p, "executions", chat)
	is.Equal(len(runs), 1)
	is.Equal(runs[0].Status, "failed")
	is.Equal(runs[0].ExitCode, int64(3))
	expect.Contains(t, string(runs[0].Outputs), `"text":"hello\n"`)
	expect.Contains(t, string(runs[0].Outputs), `"text":"oops\n"`)
	permissions := rows[projections.Permission](t, p, "permissions", chat)
	is.Equal(permissions[0].Status, events.Authorized)
	is.Equal(permissions[0].DecidedBy, "user:operator")
	messages := rows[projections.ShownMessage](t, p, "messages", chat)
	is.Equal(len(messages), 3) // the person's, the one with the call, the closing one
	is.Equal(messages[2].EngineStatus, "completed")
	expect.Contains(t, string(messages[2].Parts), `"text":"done"`)

	delivered := 0
	for _, e := range p.history(t, chat) {
		if e.Subject.Kind == "message.delivered" {
			delivered++
		}
	}
	is.Equal(delivered, 1)
}
