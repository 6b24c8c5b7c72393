package console_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cmdtest"
	"pocketcoder/cmd/console/turn"
	"pocketcoder/events"
	"pocketcoder/projections"
)

func TestExitStatusOfATurn(t *testing.T) {
	for name, want := range map[string]turn.End{
		"perm-bash-once": turn.Completed, "perm-bash-reject": turn.Denied, "perm-bash-reject-message": turn.Completed,
		"child-shell": turn.Completed, "abort-text": turn.Aborted, "error-401": turn.Failed, "error-nomodel": turn.Failed,
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			all, _ := cmdtest.Trace(t, name)
			is.Equal(turnOf(t, all).End(), want)
			is.Equal(turnOf(t, all).Whose(), projections.TurnUser)
		})
	}
}

// turnOf follows a trace whose first session is the chat's own.
func turnOf(t *testing.T, all []events.Event) *turn.Turn {
	t.Helper()
	f := turn.New(turn.ReadPayload(events.OpenCode{Properties: all[0].Data}).SessionID)
	for _, e := range all {
		f.Apply(e)
	}
	return f
}

func TestTurnIsTheAssistantsUntilItsEnd(t *testing.T) {
	is := is.New(t)
	all, _ := cmdtest.Trace(t, "abort-text")
	idle := slices.IndexFunc(all, func(e events.Event) bool { return e.Subject.Kind == "opencode.session.idle" })
	is.Equal(turnOf(t, all[:idle+1]).Whose(), projections.TurnAssistant) // the first idle comes early
	f := turnOf(t, all)
	f.Apply(cmdtest.Own(t, 100, "user:u", events.MessageSubmitted{Message: "m2"}))
	is.Equal(f.Whose(), projections.TurnAssistant)
	f.Begin()
	is.True(f.Apply(cmdtest.Own(t, 101, "user:u", events.MessageFailed{Message: "m2", Error: "no OpenCode"})))
	is.Equal(f.Whose(), projections.TurnUser)
	is.Equal(f.End(), turn.End(turn.Failed))
}

func TestExitStatusWhenADenialLeavesAnotherRequest(t *testing.T) {
	deny := func(typ, reason string) events.Data {
		return events.PermissionDecided{Permission: "per_1", Type: typ, Decision: events.Denied, Reason: reason}
	}
	for name, c := range map[string]struct {
		happens []events.Data
		want    turn.End
	}{
		"nothing was denied":          {nil, turn.Pending},
		"denied":                      {[]events.Data{deny("bash", "")}, turn.Denied},
		"denied with a reason":        {[]events.Data{deny("bash", "not today")}, turn.Pending},
		"one of each":                 {[]events.Data{deny("bash", ""), deny("bash", "not today")}, turn.Denied},
		"a created name is deleted":   {[]events.Data{deny(events.KindKeep, "")}, turn.Pending},
		"more budget is denied":       {[]events.Data{deny(events.KindBudget, "enough")}, turn.Denied},
		"in the turn that is resumed": {[]events.Data{deny("bash", ""), events.MessageSubmitted{Message: "m2", Resumes: "per_2"}}, turn.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			f := turn.New("ses_1")
			for i, d := range c.happens {
				f.Apply(cmdtest.Own(t, i+1, "user:u", d))
			}
			is.New(t).Equal(f.EndWaiting(), c.want)
		})
	}
}

func TestQueueThatAStopHoldsDoesNotKeepTheTurn(t *testing.T) {
	is := is.New(t)
	f, seq := turn.New("ses_1"), 0
	apply := func(d events.Data) events.Event {
		seq++
		e := cmdtest.Own(t, seq, "user:u", d)
		f.Apply(e)
		return e
	}
	apply(events.MessageSubmitted{Message: "m1"})
	apply(events.MessageSending{Message: "m1", EngineMessage: "msg_1"})
	apply(events.MessageDelivered{Message: "m1"})
	apply(events.MessageSubmitted{Message: "m2"})
	apply(events.MessageSubmitted{Message: "m3"})
	stop := apply(events.AbortRequested{})
	is.Equal(f.Whose(), projections.TurnAssistant) // until it is stopped
	apply(events.EffectDone{Effect: stop.ID})
	is.Equal(f.Whose(), projections.TurnUser)
	apply(events.MessageSteered{Message: "m3"})
	is.Equal(f.Whose(), projections.TurnAssistant)
	apply(events.MessageWithdrawn{Message: "m3"})
	is.Equal(f.Whose(), projections.TurnAssistant) // m2 is sent too
}

func TestTurnThatIsStoppedBeforeItsMessageIsSentIsAborted(t *testing.T) {
	is := is.New(t)
	f := turn.New("")
	for i, d := range []events.Data{events.MessageSubmitted{Message: "m1"}, events.AbortRequested{}} {
		f.Apply(cmdtest.Own(t, i+1, "user:u", d))
	}
	is.Equal(f.Whose(), projections.TurnUser)
	is.Equal(f.End(), turn.End(turn.Aborted))

	f = turn.New("ses_1") // a stop when nothing runs or waits stops no turn
	f.Apply(cmdtest.Own(t, 1, "user:u", events.AbortRequested{}))
	is.Equal(f.End(), turn.End(turn.Completed))
}

func TestDismissedQuestionOfAToolCountsAsADenial(t *testing.T) {
	is := is.New(t)
	f, seq := turn.New("ses_1"), 0
	apply := func(e events.Event) {
		seq++
		f.Apply(cmdtest.Numbered(e, seq))
	}
	message := func(id, finish string) {
		for _, m := range []string{`"time":{"created":1}`, `"time":{"created":1,"completed":2},"finish":"` + finish + `"`} {
			e, err := events.NewOpenCode("chat1", "local", "evt_1", -1, events.OpenCode{Type: "message.updated",
				Properties: json.RawMessage(`{"sessionID":"ses_1","info":{"id":"` + id + `","role":"assistant",` + m + `}}`)})
			is.NoErr(err)
			apply(e)
		}
	}
	message("msg_1", "tool-calls")
	apply(cmdtest.Own(t, 1, "user:u", events.QuestionAnswered{Question: "q1", Answers: []string{"yes"}}))
	is.Equal(f.End(), turn.End(turn.Lost)) // the turn has no end yet
	apply(cmdtest.Own(t, 1, "user:u", events.QuestionAnswered{Question: "q1", Rejected: true}))
	is.Equal(f.End(), turn.End(turn.Denied))
	message("msg_2", "stop") // the model goes on
	is.Equal(f.End(), turn.End(turn.Completed))
}

func TestLostTurnIsResumedAsANewTurn(t *testing.T) {
	is := is.New(t)
	f := turn.New("ses_1")
	is.True(f.Apply(cmdtest.Own(t, 1, "engine:local", events.TurnLost{Session: "ses_1"})))
	is.Equal(f.End(), turn.End(turn.Lost))
	f.Apply(cmdtest.Own(t, 2, "engine:local", events.MessageSubmitted{Message: "m2", Resumes: "per_1"}))
	is.Equal(f.End(), turn.End(turn.Completed))
	// a subagent's is not the chat's
	is.True(!f.Apply(cmdtest.Own(t, 3, "engine:local", events.TurnLost{Session: "ses_child"})))
}

// OpenCode ends a message like this when it is stopped while it waits to try the provider again.
func TestTurnStoppedBetweenRetriesIsNotCompleted(t *testing.T) {
	is := is.New(t)
	f := turn.New("ses_1")
	take := func(kind, properties string) {
		e, err := events.NewOpenCode("chat1", "local", "evt_1", -1,
			events.OpenCode{Type: kind, Properties: json.RawMessage(properties)})
		is.NoErr(err)
		f.Apply(cmdtest.Numbered(e, 1))
	}
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","time":{"created":1}}}`)
	take("session.status", `{"sessionID":"ses_1","status":{"type":"retry","attempt":1,"message":"no route"}}`)
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","time":{"created":1,"completed":2}}}`)
	take("session.status", `{"sessionID":"ses_1","status":{"type":"idle"}}`)
	is.Equal(f.Whose(), projections.TurnUser)
	is.Equal(f.End(), turn.End(turn.Lost))
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_2","role":"assistant","finish":"stop","time":{"created":3,"completed":4}}}`)
	is.Equal(f.End(), turn.End(turn.Completed))
}

func TestExitStatusOfATurnWithoutAWholeAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		finish, part string
		want         turn.End
	}{
		"complete":        {"stop", `"type":"text","text":"all"`, turn.Completed},
		"cut":             {"length", `"type":"text","text":"half"`, turn.Incomplete},
		"empty":           {"stop", `"type":"text","text":" "`, turn.Incomplete},
		"broken off":      {"unknown", `"type":"text","text":"half"`, turn.Lost},
		"after a call":    {"tool-calls", `"type":"tool","tool":"bash","state":{"status":"completed"}`, turn.Lost},
		"blocked":         {"content-filter", `"type":"text","text":"half"`, turn.Incomplete},
		"of the provider": {"error", `"type":"text","text":"half"`, turn.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			f := turn.New("ses_1")
			for i, e := range [][2]string{
				{"message.updated", `{"sessionID":"ses_1","info":{"id":"msg_0","role":"assistant","finish":"tool-calls","time":{"completed":1}}}`},
				{"message.part.updated", `{"sessionID":"ses_1","part":{"id":"prt_0","messageID":"msg_0","type":"text","text":"before"}}`},
				{"message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","time":{"created":1}}}`},
				{"message.part.updated", `{"sessionID":"ses_1","part":{"id":"prt_1","messageID":"msg_1",` + c.part + `}}`},
				{"message.part.updated", `{"sessionID":"ses_1","part":{"id":"prt_2","messageID":"msg_1","type":"step-finish"}}`},
				{"message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","finish":"` + c.finish + `","time":{"completed":2}}}`},
			} {
				event, err := events.NewOpenCode("chat1", "local", "evt_1", -1,
					events.OpenCode{Type: e[0], Properties: json.RawMessage(e[1])})
				is.NoErr(err)
				f.Apply(cmdtest.Numbered(event, i+1))
			}
			is.Equal(f.End(), c.want)
		})
	}
}

func TestAMessageThatALossHoldsWaitsUntilAPersonSendsIt(t *testing.T) {
	is := is.New(t)
	f := turn.New("ses_1")
	f.Apply(cmdtest.Own(t, 1, "user:u", events.MessageSubmitted{Message: "m1"}))
	f.Apply(cmdtest.Own(t, 2, "engine:local", events.MessageHeld{Message: "m1"}))
	is.Equal(f.Whose(), projections.TurnUser)
	f.Apply(cmdtest.Own(t, 3, "user:u", events.MessageSubmitted{Message: "m2"})) // does not send it
	f.Apply(cmdtest.Own(t, 4, "user:u", events.MessageWithdrawn{Message: "m2"}))
	is.Equal(f.Whose(), projections.TurnUser)
	f.Apply(cmdtest.Own(t, 5, "user:u", events.MessageSteered{Message: "m1"}))
	is.Equal(f.Whose(), projections.TurnAssistant)
}

func TestDeniedBudgetRequestEndsAsDenied(t *testing.T) {
	is := is.New(t)
	f := turn.New("ses_1")
	f.Apply(cmdtest.Own(t, 1, "user:u", events.MessageSubmitted{Message: "m1"}))
	f.Apply(cmdtest.Own(t, 2, "engine:local", events.MessageHeld{Message: "m1", Permission: "p1"}))
	is.Equal(f.End(), turn.End(turn.Pending))
	f.Apply(cmdtest.Own(t, 3, "user:u", events.PermissionDecided{Permission: "p1", Type: events.KindBudget,
		Decision: events.Denied}))
	is.Equal(f.End(), turn.End(turn.Denied))
}
