package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cmdtest"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

func TestExitStatusTellsHowTheTurnEnded(t *testing.T) {
	for name, want := range map[string]turnEnd{
		"perm-bash-once": exitCompleted, "perm-bash-reject": exitDenied, "perm-bash-reject-message": exitCompleted,
		"child-shell": exitCompleted, "abort-text": exitAborted, "error-401": exitFailed, "error-nomodel": exitFailed,
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			all, _ := cmdtest.Trace(t, name)
			is.Equal(turnOf(t, all).exit(), want)
			is.Equal(turnOf(t, all).whose(), projections.TurnUser)
		})
	}
}

// turnOf follows a trace whose first session is the chat's own.
func turnOf(t *testing.T, all []events.Event) *turn {
	t.Helper()
	f := newTurn(readOpenCode(events.OpenCode{Properties: all[0].Data}).SessionID)
	for _, e := range all {
		f.apply(e)
	}
	return f
}

func TestTurnIsTheAssistantsUntilItHasEnded(t *testing.T) {
	is := is.New(t)
	all, _ := cmdtest.Trace(t, "abort-text")
	idle := slices.IndexFunc(all, func(e events.Event) bool { return e.Subject.Kind == "opencode.session.idle" })
	is.Equal(turnOf(t, all[:idle+1]).whose(), projections.TurnAssistant) // the first idle comes early
	f := turnOf(t, all)
	f.apply(cmdtest.Own(t, 100, "user:u", events.MessageSubmitted{Message: "m2"}))
	is.Equal(f.whose(), projections.TurnAssistant)
	f.begin()
	is.True(f.apply(cmdtest.Own(t, 101, "user:u", events.MessageFailed{Message: "m2", Error: "no OpenCode"})))
	is.Equal(f.whose(), projections.TurnUser)
	is.Equal(f.exit(), turnEnd(exitFailed))
}

func TestLostTurnIsResumedAsAnother(t *testing.T) {
	is := is.New(t)
	f := newTurn("ses_1")
	is.True(f.apply(cmdtest.Own(t, 1, "engine:local", events.TurnLost{Session: "ses_1"})))
	is.Equal(f.exit(), turnEnd(exitLost))
	f.apply(cmdtest.Own(t, 2, "engine:local", events.MessageSubmitted{Message: "m2", Resumes: "per_1"}))
	is.Equal(f.exit(), turnEnd(exitCompleted))
	is.True(!f.apply(cmdtest.Own(t, 3, "engine:local", events.TurnLost{Session: "ses_child"}))) // a subagent's is not the chat's
}

// OpenCode ends a message like this when it is stopped while it waits to try the provider again.
func TestTurnThatWasStoppedBetweenRetriesIsNotCompleted(t *testing.T) {
	is := is.New(t)
	f := newTurn("ses_1")
	take := func(kind, properties string) {
		e, err := events.NewOpenCode("chat1", "local", "evt_1", -1, events.OpenCode{Type: kind, Properties: json.RawMessage(properties)})
		is.NoErr(err)
		f.apply(cmdtest.Numbered(e, 1))
	}
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","time":{"created":1}}}`)
	take("session.status", `{"sessionID":"ses_1","status":{"type":"retry","attempt":1,"message":"no route"}}`)
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","time":{"created":1,"completed":2}}}`)
	take("session.status", `{"sessionID":"ses_1","status":{"type":"idle"}}`)
	is.Equal(f.whose(), projections.TurnUser)
	is.Equal(f.exit(), turnEnd(exitLost))
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_2","role":"assistant","finish":"stop","time":{"created":3,"completed":4}}}`)
	is.Equal(f.exit(), turnEnd(exitCompleted))
}

func TestADeniedBudgetEndsAsDenied(t *testing.T) {
	is := is.New(t)
	f := newTurn("ses_1")
	f.apply(cmdtest.Own(t, 1, "user:u", events.MessageSubmitted{Message: "m1"}))
	f.apply(cmdtest.Own(t, 2, "engine:local", events.MessageHeld{Message: "m1", Permission: "p1"}))
	is.Equal(f.exit(), turnEnd(exitPending))
	f.apply(cmdtest.Own(t, 3, "user:u", events.PermissionDecided{Permission: "p1", Type: handlers.BudgetAsk, Decision: events.Denied}))
	is.Equal(f.exit(), turnEnd(exitDenied))
}
