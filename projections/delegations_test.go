package projections_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// delegated is the chat as a delegate, with a message of its parent that OpenCode has.
func (s *eventBuilder) delegated() []events.Event {
	all := s.begun()
	all[0] = s.own(events.ChatCreated{Title: "Delegate", User: "ann", Engine: engine,
		Parent: &events.Parent{Chat: "parent", Root: "parent", Depth: 1}})
	all[2] = s.own(events.MessageSubmitted{Message: "m1", Sender: "parent",
		Parts: []events.Part{{Type: "text", Text: "do"}}})
	return all
}

func TestADelegatedMessageIsOverWithItsTurn(t *testing.T) {
	t.Parallel()
	lost := events.TurnLost{Session: ses}
	for name, c := range map[string]struct {
		happens func(*eventBuilder) []events.Event
		want    string // states of messages that are over, in order
	}{
		"it runs": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.assistant(ses, "msg_a", msg1, ended)}
		}, "[]"},
		"it is answered": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle")}
		}, "[m1 completed]"},
		"and a later message runs": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.submitted("m2"), s.assistant(ses, "msg_a", msg1, ended),
				s.status(ses, "idle"), s.sending("m2", msg2), s.delivered("m2", msg2), s.status(ses, "busy")}
		}, "[m1 completed]"},
		"it failed": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.failed(ses, "ProviderAuthError"), s.status(ses, "idle")}
		}, "[m1 failed]"},
		"it is lost": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.own(lost)}
		}, "[m1 lost]"},
		"lost, and a request can resume it": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.assistant(ses, "msg_a", msg1, ""), s.request("per_1", ses, "ls"),
				s.own(events.PermissionReferred{Permission: "per_1"}), s.own(lost), s.own(events.PermissionInterrupted{Permission: "per_1"})}
		}, "[]"},
		"resumed and answered": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.own(lost),
				s.own(events.MessageSubmitted{Message: "r", Resumes: "per_1"}), s.sending("r", msg2), s.delivered("r", msg2),
				s.status(ses, "busy"), s.assistant(ses, "msg_b", msg2, ended), s.status(ses, "idle")}
		}, "[m1 completed]"},
		"being resumed": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.own(lost),
				s.own(events.MessageSubmitted{Message: "r", Resumes: "per_1"}), s.sending("r", msg2)}
		}, "[]"},
		"an OpenCode that stopped in order had rejected the request, and the turn is being resumed": {
			func(s *eventBuilder) []events.Event {
				return []events.Event{s.status(ses, "busy"), s.assistant(ses, "msg_a", msg1, ""), s.request("per_1", ses, "ls"),
					s.own(events.PermissionReferred{Permission: "per_1"}), s.assistant(ses, "msg_a", msg1, wantsTools),
					s.status(ses, "idle"), s.own(events.PermissionInterrupted{Permission: "per_1"}),
					s.decides("person:ann", "per_1", events.Authorized),
					s.own(events.MessageSubmitted{Message: "r", Resumes: "per_1"})}
			}, "[]"},
		"another turn of the delegate is resumed": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle"),
				s.own(events.MessageSubmitted{Message: "r", Resumes: "per_1"})}
		}, "[m1 completed]"},
		"the chat is deleted": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.own(events.Deleted{})}
		}, "[m1 aborted]"},
		"it has its result": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.status(ses, "busy"), s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle"),
				s.own(events.DelegateFinished{Message: "m1", Status: "completed"})}
		}, "[]"},
		"a message of another delegate is no work": {func(s *eventBuilder) []events.Event {
			return []events.Event{s.own(events.MessageSubmitted{Message: "m2", Sender: "another"}), s.status(ses, "busy"),
				s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle")}
		}, "[m1 completed]"},
		"steered messages are no work of their own": {func(s *eventBuilder) []events.Event {
			steered := events.MessageSubmitted{Message: "m2", Sender: "parent", Delivery: events.DeliverySteer}
			return []events.Event{s.own(steered),
				s.status(ses, "busy"), s.assistant(ses, "msg_a", msg1, ended), s.status(ses, "idle")}
		}, "[m1 completed]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.delegated()...)
			feed(t, m, c.happens(s)...)
			is.New(t).Equal(over(t, m), c.want)
		})
	}
}

func over(t *testing.T, m *projections.Model) string {
	t.Helper()
	all, err := m.EndedDelegateTurns(t.Context())
	is.New(t).NoErr(err)
	list := []string{}
	for _, d := range all {
		list = append(list, d.Message+" "+d.State)
	}
	return fmt.Sprint(list)
}

func TestATurnThatABudgetStoppedIsNotOverWhileMoreCanBeAllowed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.delegated()...)
	stop := own(t, events.ActorPolicy, events.AbortRequested{}).CausedBy("budget1")
	feed(t, m, s.status(ses, "busy"), s.own(events.PermissionRequested{Permission: "budget1", Type: "budget"}), stop,
		s.assistant(ses, "msg_a", msg1, aborted), s.status(ses, "idle"), s.own(events.EffectDone{Effect: stop.ID}))
	is.Equal(over(t, m), "[]")
	feed(t, m, s.own(events.PermissionDecided{Permission: "budget1", Decision: events.Authorized}))
	is.Equal(over(t, m), "[]") // the prompt that resumes it is still to come
	feed(t, m, s.own(events.MessageSubmitted{Message: "r", Resumes: "budget1"}), s.sending("r", msg2),
		s.delivered("r", msg2), s.status(ses, "busy"))
	is.Equal(over(t, m), "[]")
	feed(t, m, s.assistant(ses, "msg_b", msg2, ended), s.status(ses, "idle"))
	is.Equal(over(t, m), "[m1 completed]")

	m, s = still(t), &eventBuilder{t: t}
	feed(t, m, s.delegated()...)
	feed(t, m, s.status(ses, "busy"), s.own(events.PermissionRequested{Permission: "budget1", Type: "budget"}), stop,
		s.assistant(ses, "msg_a", msg1, aborted), s.status(ses, "idle"))
	feed(t, m, s.own(events.PermissionDecided{Permission: "budget1", Decision: events.Denied}))
	is.Equal(over(t, m), "[m1 aborted]")
}

func TestDelegatesAreNotInTheListOfChats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.delegated()...)
	feed(t, m, s.own(events.DelegateSilent{Message: "m1", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}))
	all, err := m.Chats(t.Context(), 10, 0)
	is.NoErr(err)
	is.Equal(len(all), 0)
	one, found, err := m.Delegate(t.Context(), chatID)
	is.NoErr(err)
	is.True(found)
	is.Equal([]string{one.Parent, one.State, one.Silent}, []string{"parent", "running", "2026-01-02 03:04:05.000Z"})
	inbox, err := m.Inbox(t.Context(), chatID, 10)
	is.NoErr(err)
	is.Equal([]string{inbox[0].Sender, inbox[0].Text, inbox[0].State}, []string{"parent", "do", "delivered"})
	feed(t, m, s.assistant(ses, "msg_a", msg1, ""))
	inbox, err = m.Inbox(t.Context(), chatID, 10)
	is.NoErr(err)
	is.Equal(inbox[0].State, "seen")
}
