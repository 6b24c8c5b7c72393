package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/executions"
)

// killTime limits how long the processes of an aborted command live. It is generous for busy machines; without the
// abort they would live for five minutes.
const killTime = time.Minute

func TestAbortStopsTheAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, "@@text n=2000 delay=20")
	expect.Eventually(t, "some text was streamed", func() bool { return len(p.fragments(t, "delta.chat."+chat+".>")) > 3 })
	is.Equal(p.row(t, chat).Turn, projections.TurnAssistant)
	p.abort(t, chat)
	p.turnEnds(t, chat)
	answer := rows[projections.ShownMessage](t, p, "messages", chat)[1]
	is.Equal(answer.EngineStatus, "aborted")
	is.True(len(p.text(t, chat)) > 0) // the text so far stays
	p.submit(t, chat, "@@say again")
	p.turnEnds(t, chat)
	is.Equal(rows[projections.ShownMessage](t, p, "messages", chat)[3].EngineStatus, "completed")
}

func TestAbortKillsTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	path := filepath.Join(p.dir(t), "pids")
	chat := p.chat(t, bash("trap '' TERM INT HUP; echo begun; sleep 300 & echo $$ > "+path+"; echo $! >> "+path+
		"; wait; sleep 300"))
	p.approve(t, chat, 0)
	pids := pidsIn(t, path, 2)
	p.abort(t, chat)
	requested := time.Now()
	finished := p.finished(t, chat, 0)
	for _, pid := range pids {
		is.True(!alive(pid)) // the result is recorded when all of them are gone
	}
	is.True(time.Since(requested) < killTime)
	is.Equal(finished.Reason, "cancelled")
	is.Equal(finished.Stdout.Text, "begun\n")
	p.turnEnds(t, chat)
	is.Equal(rows[executions.Run](t, p, "executions", chat)[0].Status, "cancelled")
	is.Equal(rows[projections.ShownMessage](t, p, "messages", chat)[1].EngineStatus, "aborted")
	is.Equal(p.text(t, chat), "")
}

func TestAbortExpiresPendingRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("echo never"))
	request := p.awaitRequest(t, chat, 0)
	p.abort(t, chat)
	p.event(t, chat, "permission.expired", nil)
	p.turnEnds(t, chat)
	permission := rows[projections.Permission](t, p, "permissions", chat)[0]
	is.Equal(permission.EnginePermission, request.ID)
	is.Equal(permission.Status, projections.PermissionExpired)
	is.Equal(rows[projections.ShownMessage](t, p, "messages", chat)[1].EngineStatus, "aborted")
	is.Equal(len(rows[executions.Run](t, p, "executions", chat)), 0)
	expect.Contains(t, p.decideAgain(t, chat, request, events.Authorized), "expired") // the request has expired
}
