package ingest_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

func TestAMissedStatusIsCorrected(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	s.Session("ses_1", "")
	s.Session("ses_2", "")
	s.Happen(bridgetest.Plain("session.status", bridgetest.Busy))
	s.Drained()
	s.Reconnected(r, func() {
		s.AppendUnsent(bridgetest.Plain("session.status", bridgetest.Idle),
			bridgetest.Plain("session.status", strings.ReplaceAll(bridgetest.Busy, "ses_1", "ses_2")))
	})
	for session, want := range map[string]string{"ses_1": "idle", "ses_2": "busy"} {
		row, _, err := s.Model.Session(t.Context(), session)
		is.NoErr(err)
		is.Equal(row.Status, want)
		all := s.OpenCodeEvents(s.ChatOf(session), "session.status")
		is.Equal(all[len(all)-1].Source, events.SourceReconcile)
	}
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_1"))), 0) // there was no message

	n := len(s.Events(events.AllEvents))
	s.Reconnected(r, func() {})
	is.Equal(len(s.Events(events.AllEvents)), n+1) // server.connected: what is right is not said again
}

func TestATurnThatOpenCodeForgotIsLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	s.Asking("ses_1")
	s.Asking("ses_2")
	s.Reconnected(r, func() { s.AppendUnsent(bridgetest.Plain("session.status", bridgetest.Idle)) }) // of the first
	is.Equal(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_1")), []events.TurnLost{{Session: "ses_1"}})
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_2"))), 0)
	s.Reconnected(r, func() {})
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_1"))), 1)
	chat, _, err := s.Model.Chat(t.Context(), s.ChatOf("ses_1"))
	is.NoErr(err)
	is.Equal(chat.Turn, projections.TurnUser)
}

func TestAMissedEndOfATurnIsNoLoss(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	s.Asking("ses_1")
	s.Reconnected(r, func() {
		s.AppendUnsent(s.Durably("ses_1", "message.updated", bridgetest.AssistantMessage("ses_1",
			`{"created":1,"completed":2}`))...)
		s.AppendUnsent(bridgetest.Plain("session.status", bridgetest.Idle))
	})
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_1"))), 0)
}

func TestATurnThatOpenCodeForgotBetweenTwoAnswersIsLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	for _, session := range []string{"ses_1", "ses_2"} {
		s.Asking(session)
	}
	s.Reconnected(r, func() {
		for session, finish := range map[string]string{"ses_1": "tool-calls", "ses_2": "stop"} {
			answer := strings.Replace(bridgetest.AssistantMessage(session, `{"created":1,"completed":2}`), `"role"`,
				`"finish":"`+finish+`","role"`, 1)
			s.AppendUnsent(s.Durably(session, "message.updated", answer)...)
			s.AppendUnsent(bridgetest.Plain("session.status", strings.ReplaceAll(bridgetest.Idle, "ses_1", session)))
		}
	})
	is.Equal(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_1")), []events.TurnLost{{Session: "ses_1"}})
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_2"))), 0) // it was over
	idle := s.OpenCodeEvents(s.ChatOf("ses_1"), "session.status")
	lost := s.Events(events.ChatSubject(s.ChatOf("ses_1"), events.TurnLost{}.Kind()))
	is.True(lost[0].Seq < idle[len(idle)-1].Seq) // no reader sees a completed turn
	row, _, err := s.Model.LastTurn(t.Context(), s.ChatOf("ses_1"))
	is.NoErr(err)
	is.Equal(row.State, turnstate.Lost)
	s.Reconnected(r, func() {})
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_1"))), 1)
}

func TestATurnThatEndsWhileReconcilingIsNotLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	s.Asking("ses_1", "per_1")
	s.Silent = true
	s.Decide("per_1", events.Authorized, "")
	expect.Eventually(t, "OpenCode gets it", func() bool {
		return len(s.Requests("POST", "/permission/per_1/reply")) == 1
	})
	s.Reconnected(r, func() {
		var once atomic.Bool
		s.RefuseWith(func(r bridgetest.Request) int { // between the history and the status
			if r.Path == "/session/status" && once.CompareAndSwap(false, true) {
				s.Happen(s.Durably("ses_1", "message.part.updated", bridgetest.Tool("ses_1", "per_1", `{"status":"completed"}`))...)
				s.Answer("ses_1", "")
				s.Happen(s.Durably("ses_1", "message.updated", bridgetest.AssistantMessage("ses_1",
					`{"created":1,"completed":2}`))...)
			}
			return 0
		})
	})
	chat := s.ChatOf("ses_1")
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, chat)), 0)
	is.True(!s.Permission("per_1").Interrupted)
	is.Equal(len(bridgetest.Facts[events.MessageSubmitted](s, chat)), 0)
}

func TestRequestsAreComparedWithOpenCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	s.Asking("ses_1", "per_kept", "per_answered")
	s.Asking("ses_2", "per_forgotten")
	missed := strings.ReplaceAll(bridgetest.PermissionRequest("per_new", "ses_1"), "date", "date >now && cat <now")
	s.Reconnected(r, func() {
		s.AppendUnsent(bridgetest.Plain("permission.replied", `{"sessionID":"ses_1","requestID":"per_answered","reply":"once"}`))
		s.AppendUnsent(bridgetest.Plain("permission.asked", missed))
		s.AppendUnsent(bridgetest.Plain("permission.replied", `{"sessionID":"ses_2","requestID":"per_forgotten","reply":"once"}`))
		s.AppendUnsent(bridgetest.Plain("session.status", strings.ReplaceAll(bridgetest.Idle, "ses_1", "ses_2")))
	})
	is.Equal(s.Permission("per_kept").Status, events.Draft)
	is.True(!s.Permission("per_kept").Interrupted)
	is.Equal(s.Permission("per_answered").Status, events.Expired) // its session goes on, so it was answered
	is.Equal(s.Permission("per_forgotten").Status, events.Draft)
	is.True(s.Permission("per_forgotten").Interrupted)
	is.Equal(s.Permission("per_new").Status, events.Draft)
	requests := s.OpenCodeEvents(s.ChatOf("ses_1"), events.PermissionAsked)
	is.Equal(requests[len(requests)-1].Source, events.SourceReconcile)
	// byte for byte, because an approval covers the exact request
	is.Equal(string(requests[len(requests)-1].Data), missed)

	n := len(s.Events(events.AllEvents))
	s.Reconnected(r, func() {})
	is.Equal(len(s.Events(events.AllEvents)), n+1) // settled once
}

func TestRequestsThatOpenCodeCannotListAreIgnored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	s.Asking("ses_1", "per_1")
	s.Reconnected(r, func() {
		s.Forget()
		s.RefuseNext("GET", "/permission", 1, 400)
	})
	is.Equal(s.Permission("per_1").Status, events.Draft)
	is.True(!s.Permission("per_1").Interrupted)
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_1"))), 1) // the rest is compared
}

func TestAnAcceptedReplyIsNoInterruption(t *testing.T) {
	for name, after := range map[string]struct {
		state  string
		exec   bool
		status string
	}{
		"the tool completed":      {`{"status":"completed","output":""}`, false, bridgetest.Idle},
		"the tool failed":         {`{"status":"error","error":"no such file"}`, false, bridgetest.Idle},
		"the command had started": {`{"status":"running","input":{}}`, true, bridgetest.Idle},
		"the turn goes on":        {`{"status":"running","input":{}}`, false, bridgetest.Busy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, r := bridgetest.Connected(t)
			s.Asking("ses_1", "per_1")
			s.Locked(func() { s.Silent = true })
			s.Decide("per_1", events.Authorized, "")
			expect.Eventually(t, "OpenCode gets it", func() bool {
				return len(s.Requests("POST", "/permission/per_1/reply")) == 1
			})
			chat := s.ChatOf("ses_1")
			s.Reconnected(r, func() {
				s.AppendUnsent(s.Durably("ses_1", "message.part.updated", bridgetest.Tool("ses_1", "per_1", after.state))...)
				s.AppendUnsent(bridgetest.Plain("session.status", after.status))
				if after.exec {
					e, err := events.New(chat, events.ActorSandbox, events.ExecRequested{Exec: "x1", Permission: "per_1",
						Session: "ses_1", Call: "call_per_1", Command: "date"})
					s.Must(err)
					_, err = s.Log.Append(t.Context(), e)
					s.Must(err)
				}
			})
			p := s.Permission("per_1")
			is.Equal(p.Status, events.Authorized)
			is.True(!p.Interrupted) // otherwise the call would run again
			is.True(p.Replied)
			is.Equal(len(bridgetest.Facts[events.MessageSubmitted](s, chat)), 0)
			is.Equal(len(s.Requests("POST", "/permission/per_1/reply")), 1)
		})
	}
}

// A stopping OpenCode rejects the waiting requests. An approval that it did not get is carried out after the restart.
func TestAnApprovalThatAStoppingOpenCodeMissedIsKept(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	s.Asking("ses_1", "per_1")
	s.Locked(func() { s.Silent = true })
	s.Decide("per_1", events.Authorized, "")
	expect.Eventually(t, "OpenCode gets it", func() bool {
		return len(s.Requests("POST", "/permission/per_1/reply")) == 1
	})
	s.Reconnected(r, func() {
		s.AppendUnsent(s.Durably("ses_1", "message.part.updated", bridgetest.Tool("ses_1", "per_1",
			`{"status":"error","error":"The user rejected permission to use this specific tool call."}`))...)
		s.AppendUnsent(bridgetest.Plain("session.status", bridgetest.Idle))
	})
	p := s.Permission("per_1")
	is.Equal(p.Status, events.Authorized)
	is.True(p.Interrupted)
	is.True(!p.Replied)
}

func TestQuestionsAreComparedWithOpenCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := bridgetest.Connected(t)
	s.Asking("ses_1")
	s.Happen(bridgetest.Plain("question.asked", bridgetest.Question("que_kept", "ses_1")),
		bridgetest.Plain("question.asked", bridgetest.Question("que_gone", "ses_1")))
	s.Drained()
	s.Reconnected(r, func() {
		s.AppendUnsent(bridgetest.Plain("question.rejected", `{"sessionID":"ses_1","requestID":"que_gone"}`))
		s.AppendUnsent(bridgetest.Plain("question.asked", bridgetest.Question("que_new", "ses_1")))
	})
	chat := s.ChatOf("ses_1")
	status := map[string]string{}
	all, err := s.Model.Questions(t.Context(), chat, "")
	is.NoErr(err)
	for _, q := range all {
		status[q.EngineQuestion] = q.Status
	}
	is.Equal(status, map[string]string{"que_kept": "asked", "que_gone": "expired", "que_new": "asked"})
	is.Equal(len(bridgetest.Facts[events.QuestionExpired](s, chat)), 1) // one event for the questions of one tool call
	s.Reconnected(r, func() {})
	is.Equal(len(bridgetest.Facts[events.QuestionExpired](s, chat)), 1)
	is.Equal(len(s.OpenCodeEvents(chat, events.QuestionAsked)), 3)
}

func TestTheHistoryIsFetchedAtTheStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := bridgetest.NewSystem(t)
	frames := opencodetest.RecordedEvents(t, "9i-perm-task")[1:]
	_, before := roots(s.OpenCode, frames)
	s.AppendUnsent(before...)
	s.AppendUnsent(frames...)
	s.Start().Connected()
	s.Drained()
	checkDurable(t, s, append(before, frames...))
	fetched := slices.DeleteFunc(s.Events(events.AllEvents), func(e events.Event) bool { return e.OpenCodeSeq < 0 })
	for _, e := range fetched {
		is.Equal(e.Source, events.SourceReconcile)
	}
}
