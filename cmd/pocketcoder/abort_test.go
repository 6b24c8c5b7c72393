package main

import (
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
)

func TestAbortKillsTheCommandAndExpiresRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	path := filepath.Join(p.dir(t), "pids")
	chat := p.chat(t, twoCommands("trap '' TERM INT HUP; echo begun; sleep 300 & echo $$ > "+path+"; echo $! >> "+path+
		"; wait; sleep 300", "echo never"))
	running, pending := p.awaitRequest(t, chat, 0), p.awaitRequest(t, chat, 1)
	if running.Command() == "echo never" {
		running, pending = pending, running
	}
	p.decide(t, chat, running, events.Authorized, "")
	pids := pidsIn(t, path, 2)
	p.abort(t, chat)
	finished := p.finished(t, chat, 0)
	for _, pid := range pids {
		is.True(!alive(pid)) // the result is recorded when all of them are gone
	}
	is.Equal(finished.Reason, "cancelled")
	is.Equal(finished.Stdout.Text, "begun\n")
	p.event(t, chat, "permission.expired", nil)
	p.turnEnds(t, chat)
	ran := rows[projections.ShownExecution](t, p, "executions", chat)
	is.Equal([]any{len(ran), ran[0].Status}, []any{1, "cancelled"})
	is.Equal(rows[projections.ShownMessage](t, p, "messages", chat)[1].EngineStatus, "aborted")
	is.Equal(p.text(t, chat), "")
	for _, a := range rows[projections.Permission](t, p, "permissions", chat) {
		is.Equal(a.Status == events.Expired, a.EnginePermission == pending.ID)
	}
}
