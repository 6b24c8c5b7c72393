package ingest_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/turnstate"
)

// fail reports what OpenCode reports when it cannot store the end of a message: an error, and idle.
func fail(s *bridgetest.System, session string) {
	s.Happen(bridgetest.Plain("session.error", `{"sessionID":"`+session+
		`","error":{"name":"UnknownError","data":{"message":"database or disk is full"}}}`))
	s.Happen(bridgetest.Plain("session.status", strings.ReplaceAll(bridgetest.Idle, "ses_1", session)),
		bridgetest.Plain("session.idle", `{"sessionID":"`+session+`"}`))
}

// answering holds the properties of message.updated for the assistant message that Asking began, or for another one.
func answering(session, message, time string) string {
	return strings.ReplaceAll(bridgetest.AssistantMessage(session, time), "msg_"+session, message)
}

func beat(s *bridgetest.System) { s.Say(bridgetest.Plain("server.heartbeat", "{}")) }

const completed = `{"created":1,"completed":2},"finish":"stop"`

func TestATurnThatOpenCodeLeftIsLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := bridgetest.Connected(t)
	const left, goesOn, ends, beginsAgain = "ses_1", "ses_2", "ses_3", "ses_4"
	all := []string{left, goesOn, ends, beginsAgain}
	for _, session := range all {
		s.Asking(session)
		fail(s, session)
	}
	s.Drained()
	busy := func(session string) []byte {
		return bridgetest.Plain("session.status", strings.ReplaceAll(bridgetest.Busy, "ses_1", session))
	}
	// the events are on their way
	s.AppendUnsent(busy(goesOn))
	s.AppendUnsent(s.Durably(ends, "message.updated", answering(ends, "msg_ses_3", completed))...)
	var once atomic.Bool
	s.RefuseWith(func(r bridgetest.Request) int {
		if r.Path == "/pocketcoder/history" && once.CompareAndSwap(false, true) { // after the statuses were read
			next := answering(beginsAgain, "msg_next", `{"created":3}`)
			s.AppendUnsent(s.Durably(beginsAgain, "message.updated", next)...)
			s.AppendUnsent(busy(beginsAgain))
		}
		return 0
	})
	lost := func(session string) int { return len(bridgetest.Facts[events.TurnLost](s, s.ChatOf(session))) }
	state := func(session string) string {
		row, _, err := s.Model.LastTurn(t.Context(), s.ChatOf(session))
		is.NoErr(err)
		return row.State
	}
	expect.Eventually(t, "the turn is lost", func() bool { beat(s); return lost(left) == 1 })
	for range 3 {
		beat(s)
		s.Drained()
	}
	is.Equal([]int{lost(left), lost(goesOn), lost(ends), lost(beginsAgain)}, []int{1, 0, 0, 0})
	is.Equal([]string{state(left), state(goesOn), state(ends), state(beginsAgain)},
		[]string{turnstate.Lost, turnstate.Running, turnstate.Completed, turnstate.Running})
	is.Equal(len(s.Requests("GET", "/global/event")), 1) // the stream went on

	// OpenCode ends the message after all
	s.Happen(s.Durably(left, "message.updated", answering(left, "msg_ses_1", completed))...)
	s.Drained()
	is.Equal(state(left), turnstate.Completed)
}

// OpenCode may report idle before the end of a message, so a heartbeat at that moment must not end the turn.
func TestATurnIsNotLostWhileItsMessageMayEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := bridgetest.NewSystem(t)
	s.Start(func(b *outbox.Outbox) { b.Ingest.IdleLimit = time.Hour }).Connected()
	s.Asking("ses_1")
	fail(s, "ses_1")
	for range 3 {
		beat(s)
		s.Drained()
	}
	is.Equal(len(bridgetest.Facts[events.TurnLost](s, s.ChatOf("ses_1"))), 0)
	is.Equal(len(s.Requests("GET", "/session/status")), 1) // at the start
}
