package opencode

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/recording"
	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections"
)

const (
	busy = `{"sessionID":"ses_1","status":{"type":"busy"}}`
	idle = `{"sessionID":"ses_1","status":{"type":"idle"}}`
)

func ask(id, session string) string {
	return fmt.Sprintf(`{"id":%q,"sessionID":%q,"permission":"bash","patterns":["date"],"metadata":{"command":"date"},"always":[],"tool":{"messageID":"msg_%s","callID":"call_%s"}}`, id, session, session, id)
}

func question(id, session string) string {
	return fmt.Sprintf(`{"id":%q,"sessionID":%q,"questions":[{"question":"A?","header":"A","options":[]},{"question":"B?","header":"B","options":[]}],"tool":{"messageID":"msg_%s","callID":"c"}}`, id, session, session)
}

// tool is a part of the tool call that asked.
func tool(session, askID, state string) string {
	return fmt.Sprintf(`{"sessionID":%q,"part":{"id":"prt_%s","messageID":"msg_%s","sessionID":%q,"type":"tool","tool":"bash","callID":"call_%s","state":%s}}`, session, askID, session, session, askID, state)
}

func assistantMessage(session, time string) string {
	return fmt.Sprintf(`{"sessionID":%q,"info":{"id":"msg_%s","sessionID":%q,"role":"assistant","time":%s}}`, session, session, session, time)
}

// asking makes a session whose turn waits for asks.
func (s *system) asking(session string, asks ...string) {
	s.session(session, "")
	s.happen(s.durably(session, "message.updated", assistantMessage(session, `{"created":1}`))...)
	s.happen(plain("session.status", strings.ReplaceAll(busy, "ses_1", session)))
	for _, id := range asks {
		s.happen(s.durably(session, "message.part.updated", tool(session, id, `{"status":"pending","input":{}}`))...)
		s.happen(plain("permission.asked", ask(id, session)))
		s.happen(s.durably(session, "message.part.updated", tool(session, id, `{"status":"running","input":{"command":"date"}}`))...)
	}
	s.drained()
}

func (s *system) permission(id string) projections.Permission {
	s.t.Helper()
	p, known, err := s.model.Permission(s.t.Context(), id)
	s.must(err)
	if !known {
		s.t.Fatalf("ask %s is not known", id)
	}
	return p
}

func (s *system) decide(id string, d events.Decision, reason string) {
	s.t.Helper()
	seq, err := s.permissions.Decide(s.t.Context(), permission.Decide{
		Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: s.permission(id).Chat, Permission: id, Decision: d, Reason: reason,
	})
	s.must(err)
	s.must(s.model.Wait(s.t.Context(), seq))
}

func TestAStatusThatChangedUnheardIsCorrected(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.start().connected()
	s.session("ses_1", "")
	s.session("ses_2", "")
	s.happen(plain("session.status", busy))
	s.drained()
	s.reconnected(r, func() {
		s.miss(plain("session.status", idle), plain("session.status", strings.ReplaceAll(busy, "ses_1", "ses_2")))
	})
	for session, want := range map[string]string{"ses_1": "idle", "ses_2": "busy"} {
		row, _, err := s.model.Session(t.Context(), session)
		is.NoErr(err)
		is.Equal(row.Status, want)
		all := s.openCode(s.chatOf(session), "session.status")
		is.Equal(all[len(all)-1].Source, events.SourceReconcile)
	}
	is.Equal(len(facts[events.TurnLost](s, s.chatOf("ses_1"))), 0) // there was no message

	n := len(s.events(events.AllEvents))
	s.reconnected(r, func() {})
	is.Equal(len(s.events(events.AllEvents)), n+1) // server.connected: what is right is not said again
}

func TestATurnThatOpenCodeForgotIsLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.start().connected()
	s.asking("ses_1")
	s.asking("ses_2")
	s.reconnected(r, func() { s.miss(plain("session.status", idle)) }) // of the first
	is.Equal(facts[events.TurnLost](s, s.chatOf("ses_1")), []events.TurnLost{{Session: "ses_1"}})
	is.Equal(len(facts[events.TurnLost](s, s.chatOf("ses_2"))), 0)
	s.reconnected(r, func() {})
	is.Equal(len(facts[events.TurnLost](s, s.chatOf("ses_1"))), 1)
	chat, _, err := s.model.Chat(t.Context(), s.chatOf("ses_1"))
	is.NoErr(err)
	is.Equal(chat.Turn, projections.TurnUser)
}

func TestATurnThatEndedUnheardIsNotLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.start().connected()
	s.asking("ses_1")
	s.reconnected(r, func() {
		s.miss(s.durably("ses_1", "message.updated", assistantMessage("ses_1", `{"created":1,"completed":2}`))...)
		s.miss(plain("session.status", idle))
	})
	is.Equal(len(facts[events.TurnLost](s, s.chatOf("ses_1"))), 0)
}

func TestATurnThatEndsWhileReconcilingIsNotLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.start().connected()
	s.asking("ses_1", "per_1")
	s.silent = true
	s.decide("per_1", events.Authorized, "")
	expect.Eventually(t, "it is told", func() bool { return len(s.requests("POST", "/permission/per_1/reply")) == 1 })
	s.reconnected(r, func() {
		var once atomic.Bool
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refuse = func(r request) int { // after the history was fetched, before OpenCode is asked what runs
			if r.Path == "/session/status" && once.CompareAndSwap(false, true) {
				s.happen(s.durably("ses_1", "message.part.updated", tool("ses_1", "per_1", `{"status":"completed"}`))...)
				s.answer("ses_1", "")
				s.happen(s.durably("ses_1", "message.updated", assistantMessage("ses_1", `{"created":1,"completed":2}`))...)
			}
			return 0
		}
	})
	chat := s.chatOf("ses_1")
	is.Equal(len(facts[events.TurnLost](s, chat)), 0)
	is.True(!s.permission("per_1").Interrupted)
	is.Equal(len(facts[events.MessageSubmitted](s, chat)), 0)
}

func TestAsksAreComparedWithWhatOpenCodeHolds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.start().connected()
	s.asking("ses_1", "per_kept", "per_answered")
	s.asking("ses_2", "per_forgotten")
	missed := strings.ReplaceAll(ask("per_new", "ses_1"), "date", "date >now && cat <now")
	s.reconnected(r, func() {
		s.miss(plain("permission.replied", `{"sessionID":"ses_1","requestID":"per_answered","reply":"once"}`))
		s.miss(plain("permission.asked", missed))
		s.miss(plain("permission.replied", `{"sessionID":"ses_2","requestID":"per_forgotten","reply":"once"}`))
		s.miss(plain("session.status", strings.ReplaceAll(idle, "ses_1", "ses_2")))
	})
	is.Equal(s.permission("per_kept").Status, projections.PermissionDraft)
	is.True(!s.permission("per_kept").Interrupted)
	is.Equal(s.permission("per_answered").Status, projections.PermissionExpired) // its session goes on: somebody answered
	is.Equal(s.permission("per_forgotten").Status, projections.PermissionDraft)
	is.True(s.permission("per_forgotten").Interrupted)
	is.Equal(s.permission("per_new").Status, projections.PermissionDraft)
	asked := s.openCode(s.chatOf("ses_1"), events.PermissionAsked)
	is.Equal(asked[len(asked)-1].Source, events.SourceReconcile)
	is.Equal(string(asked[len(asked)-1].Data), missed) // byte for byte: an approval of it is good for the same request later

	n := len(s.events(events.AllEvents))
	s.reconnected(r, func() {})
	is.Equal(len(s.events(events.AllEvents)), n+1) // settled once
}

func TestAsksThatOpenCodeCannotListAreLeftAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.start().connected()
	s.asking("ses_1", "per_1")
	s.reconnected(r, func() {
		s.forget()
		s.refusing("GET", "/permission", 1, 400)
	})
	is.Equal(s.permission("per_1").Status, projections.PermissionDraft)
	is.True(!s.permission("per_1").Interrupted)
	is.Equal(len(facts[events.TurnLost](s, s.chatOf("ses_1"))), 1) // the rest is compared
}

func TestAReplyThatOpenCodeTookUnheardIsNoInterruption(t *testing.T) {
	for name, after := range map[string]struct {
		state  string
		exec   bool
		status string
	}{
		"the tool completed":      {`{"status":"completed","output":""}`, false, idle},
		"the tool failed":         {`{"status":"error","error":"no such file"}`, false, idle},
		"the command had started": {`{"status":"running","input":{}}`, true, idle},
		"the turn goes on":        {`{"status":"running","input":{}}`, false, busy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			r := s.start().connected()
			s.asking("ses_1", "per_1")
			s.mu.Lock()
			s.silent = true
			s.mu.Unlock()
			s.decide("per_1", events.Authorized, "")
			expect.Eventually(t, "it is told", func() bool { return len(s.requests("POST", "/permission/per_1/reply")) == 1 })
			chat := s.chatOf("ses_1")
			s.reconnected(r, func() {
				s.miss(s.durably("ses_1", "message.part.updated", tool("ses_1", "per_1", after.state))...)
				s.miss(plain("session.status", after.status))
				if after.exec {
					e, err := events.New(chat, events.ActorSandbox, events.ExecRequested{Exec: "x1", Permission: "per_1", Session: "ses_1", Call: "call_per_1", Command: "date"})
					s.must(err)
					_, err = s.log.Append(t.Context(), e)
					s.must(err)
				}
			})
			p := s.permission("per_1")
			is.Equal(p.Status, projections.PermissionAuthorized)
			is.True(!p.Interrupted) // or it would be run again
			is.True(p.Replied)
			is.Equal(len(facts[events.MessageSubmitted](s, chat)), 0)
			is.Equal(len(s.requests("POST", "/permission/per_1/reply")), 1)
		})
	}
}

func TestQuestionsAreComparedWithWhatOpenCodeHolds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.start().connected()
	s.asking("ses_1")
	s.happen(plain("question.asked", question("que_kept", "ses_1")), plain("question.asked", question("que_gone", "ses_1")))
	s.drained()
	s.reconnected(r, func() {
		s.miss(plain("question.rejected", `{"sessionID":"ses_1","requestID":"que_gone"}`))
		s.miss(plain("question.asked", question("que_new", "ses_1")))
	})
	chat := s.chatOf("ses_1")
	status := map[string]string{}
	all, err := s.model.Questions(t.Context(), chat, "")
	is.NoErr(err)
	for _, q := range all {
		status[q.EngineQuestion] = q.Status
	}
	is.Equal(status, map[string]string{"que_kept": "asked", "que_gone": "expired", "que_new": "asked"})
	is.Equal(len(facts[events.QuestionExpired](s, chat)), 1) // once for those asked together
	s.reconnected(r, func() {})
	is.Equal(len(facts[events.QuestionExpired](s, chat)), 1)
	is.Equal(len(s.openCode(chat, events.QuestionAsked)), 3)
}

func TestWhatHappenedWhileNothingRanIsFetchedAtTheStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	frames := recording.Events(t, "9i-perm-task")[1:]
	_, before := roots(s.outside, frames)
	s.miss(before...)
	s.miss(frames...)
	s.start().connected()
	s.drained()
	checkDurable(t, s, append(before, frames...))
	fetched := slices.DeleteFunc(s.events(events.AllEvents), func(e events.Event) bool { return e.OpenCodeSeq < 0 })
	for _, e := range fetched {
		is.Equal(e.Source, events.SourceReconcile)
	}
}
