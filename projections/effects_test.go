package projections_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
)

func TestAnEffectIsOpenUntilItsEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	s := &eventBuilder{t: t}
	abort, revert, fork := s.own(events.AbortRequested{Session: child}), s.own(events.RevertRequested{Message: msg1}),
		s.own(events.ForkRequested{Chat: "c2"})
	feed(t, m, s.created(), abort, revert, fork)
	openIDs := func() (ids []string) {
		t.Helper()
		all, err := m.PendingEffects(t.Context(), engine)
		is.NoErr(err)
		for _, f := range all {
			ids = append(ids, f.ID)
		}
		return ids
	}
	is.Equal(openIDs(), []string{abort.ID, revert.ID, fork.ID})
	aborting, err := m.IsAborting(t.Context(), abort.Subject.ID)
	is.NoErr(err)
	is.True(aborting)

	feed(t, m, s.own(events.EffectDone{Effect: abort.ID}), s.own(events.EffectFailed{Effect: revert.ID, Reason: "no"}),
		in(t, "chat2", user, events.EffectDone{Effect: fork.ID}), s.own(events.EffectDone{Effect: "unknown"}))
	is.Equal(openIDs(), []string{fork.ID}) // another chat's event ends nothing
	aborting, err = m.IsAborting(t.Context(), abort.Subject.ID)
	is.NoErr(err)
	is.True(!aborting)
}

func TestNobodyIsWokenWhileAnAnswerStreams(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	s := &eventBuilder{t: t}
	feed(t, m, s.created(), s.assistant(ses, "msg_a", msg1, ""))
	before := m.Woken()
	feed(t, m, s.opencode(true, "message.part.updated",
		`{"sessionID":"ses_own","part":{"id":"prt_1","messageID":"msg_a","type":"text","text":"word"}}`),
		s.opencode(false, "session.next.text.delta", `{"sessionID":"ses_own"}`))
	is.Equal(m.Woken(), before)
	feed(t, m, s.assistant(ses, "msg_a", msg1, `,"time":{"created":1,"completed":2},"finish":"stop"`))
	is.Equal(m.Woken(), before+1)
}

// The stop of a turn ends the wait for an answer, and leaving files out does not.
func TestAnOmissionEndsNoWaitForAnAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, requested := range []events.Data{events.AbortRequested{}, events.OmissionRequested{}} {
		m := still(t)
		s := &eventBuilder{t: t}
		e := s.own(requested)
		feed(t, m, s.created(), s.own(events.SessionBound{Session: ses}), s.own(events.MessageSubmitted{Message: "m1"}),
			s.own(events.MessageSending{Message: "m1", Session: ses, EngineMessage: msg1}),
			s.own(events.MessageDelivered{Message: "m1"}), e, s.own(events.EffectDone{Effect: e.ID}))
		row, _, err := m.Session(t.Context(), ses)
		is.NoErr(err)
		_, isOmission := requested.(events.OmissionRequested)
		is.Equal(row.Awaiting == msg1, isOmission)
	}
}
