package projections_test

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
)

func TestSpentCountsWhatWasWrittenHere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.opencode(true, "session.created",
		`{"sessionID":"ses_fork","info":{"id":"ses_fork","directory":"/w","title":"t","time":{"created":1000}}}`))
	costs := func(session, id string, at int, cost float64, more string) events.Event {
		return s.opencode(true, "message.updated", fmt.Sprintf(
			`{"sessionID":%q,"info":{"id":%q,"role":"assistant","parentID":%q,"cost":%g,"tokens":{"input":10,"output":5,"reasoning":1,"cache":{"read":100,"write":50}},"time":{"created":%d%s}}}`,
			session, id, msg1, cost, at, more))
	}
	feed(t, m, costs(ses, "msg_a", 900, 1, ""), costs(ses, "msg_a", 900, 1.5, `,"completed":950`),
		costs("ses_fork", "msg_copy", 900, 8, `,"completed":950`), costs("ses_fork", "msg_b", 1100, 2, ""))
	spent := func(in projections.SpendingSpan) projections.Spending {
		t.Helper()
		got, err := m.Spending(t.Context(), in)
		is.NoErr(err)
		return got
	}
	all := projections.Spending{Cost: 3.5, Tokens: 32}
	is.Equal(spent(projections.SpendingSpan{}), all)
	is.Equal(spent(projections.SpendingSpan{Chat: chatID}), all)
	is.Equal(spent(projections.SpendingSpan{Chat: "another"}), projections.Spending{})
	is.Equal(spent(projections.SpendingSpan{User: "nobody"}), projections.Spending{})
	chat, _, err := m.Chat(t.Context(), chatID)
	is.NoErr(err)
	is.Equal(spent(projections.SpendingSpan{User: chat.User, Chat: chatID}), all)
	messages := shown(t, m)
	day := messages[len(messages)-1].Created[:len("2006-01-02")]
	is.Equal(spent(projections.SpendingSpan{Day: day}), all)
	is.Equal(spent(projections.SpendingSpan{Day: "2001-01-01"}), projections.Spending{})
	is.Equal(spent(projections.SpendingSpan{Day: day, Project: chat.Project}), all)
	is.Equal(spent(projections.SpendingSpan{Day: day, Project: "app"}), projections.Spending{})
	is.Equal(spent(projections.SpendingSpan{Project: "app"}), projections.Spending{})
	usage, err := m.UsageByModel(t.Context(), chatID)
	is.NoErr(err)
	is.Equal([]any{len(usage), usage[0].Messages, usage[0].Cost}, []any{1, int64(2), 3.5})

	feed(t, m, s.opencode(true, "message.removed", fmt.Sprintf(`{"sessionID":%q,"messageID":"msg_a"}`, ses)),
		s.own(events.Deleted{}))
	is.Equal(spent(projections.SpendingSpan{Chat: chatID}), all) // it stays spent

	// A clock that was set back after the session was opened makes no answer free.
	feed(t, m, costs("ses_fork", "msg_late", 500, 0, ""), costs("ses_fork", "msg_late", 500, 4, `,"completed":600`))
	is.Equal(spent(projections.SpendingSpan{Chat: chatID}).Cost, all.Cost+4)
}

func TestTheCostOfATitleCountsOnceAndIsNotShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	before := len(shown(t, m))
	title := s.own(events.TitleGenerated{Session: ses, Provider: "p", Model: "small", Cost: 0.5, Input: 10, Output: 3,
		Reasoning: 2, CacheRead: 7})
	feed(t, m, title, title)
	is.Equal(len(shown(t, m)), before)
	messages := shown(t, m)
	day := messages[len(messages)-1].Created[:len("2006-01-02")]
	for _, in := range []projections.SpendingSpan{{}, {Chat: chatID}, {Day: day}} {
		got, err := m.Spending(t.Context(), in)
		is.NoErr(err)
		is.Equal(got, projections.Spending{Cost: 0.5, Tokens: 15})
	}
	usage, err := m.UsageByModel(t.Context(), chatID)
	is.NoErr(err)
	is.Equal([]any{usage[0].Provider, usage[0].Model, usage[0].TokensCacheRead}, []any{"p", "small", int64(7)})
}

// What a delegate spends counts for the chat at the root of its tree.
func TestSpentCountsTheDelegatesOfAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.delegated()...) // by the chat "parent"
	feed(t, m, s.assistant(ses, "msg_a", msg1, `,"cost":2,"tokens":{"input":1,"output":2},"time":{"created":1,"completed":2}`))
	for chat, cost := range map[string]float64{"parent": 2, chatID: 2, "another": 0} {
		got, err := m.Spending(t.Context(), projections.SpendingSpan{Chat: chat})
		is.NoErr(err)
		is.Equal([]any{chat, got.Cost}, []any{chat, cost})
	}
}

func TestAHeldMessageIsThePersonsTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created(), s.submitted("m1"))
	turn := func() string {
		t.Helper()
		chat, _, err := m.Chat(t.Context(), chatID)
		is.NoErr(err)
		return chat.Turn
	}
	is.Equal(turn(), projections.TurnAssistant)
	held := s.own(events.MessageHeld{Message: "m1", Permission: "p1", Reason: "used up"})
	feed(t, m, held, s.own(events.MessageHeld{Message: "m1", Permission: "p2", Reason: "denied"}))
	is.Equal(turn(), projections.TurnUser)
	is.Equal([]string{shown(t, m)[0].UserStatus, shown(t, m)[0].Held, shown(t, m)[0].HeldBy},
		[]string{"pending", "denied", "p2"})
	feed(t, m, s.own(events.SessionBound{Session: ses, Directory: directed}), s.sending("m1", msg1))
	is.Equal(turn(), projections.TurnAssistant)
	is.Equal(shown(t, m)[0].Held+shown(t, m)[0].HeldBy, "")
	feed(t, m, s.own(events.MessageHeld{Message: "m1", Permission: "p3", Reason: "too late"}))
	is.Equal(shown(t, m)[0].Held, "")
	feed(t, m, s.own(events.MessageFailed{Message: "m1", Domain: "infrastructure", Error: "gone"}))
	is.Equal(turn(), projections.TurnUser)
}

func TestATurnIsUnfinishedUntilItEndsByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more string
		then func(s *eventBuilder) []events.Event
		want bool
	}{
		"while it is written": {`"time":{}`, nil, true},
		"between two steps":   {`"time":{"completed":1},"finish":"tool-calls"`, nil, true},
		"when it was said":    {`"time":{"completed":1},"finish":"stop"`, nil, false},
		"when it failed":      {`"time":{"completed":1},"error":{"name":"APIError"}`, nil, false},
		"when it was aborted": {`"time":{"completed":1},"error":{"name":"MessageAbortedError"}`, nil, false},
		"when it was lost":    {`"time":{}`, func(s *eventBuilder) []events.Event { return []events.Event{s.own(events.TurnLost{Session: ses})} }, true},
		"when a person denied it": {`"time":{"completed":1},"finish":"tool-calls"`, func(s *eventBuilder) []events.Event {
			request := s.opencode(false, events.PermissionAsked,
				fmt.Sprintf(`{"id":"per_1","sessionID":%q,"permission":"bash","patterns":["ls"],"metadata":{},"always":[],"tool":{"messageID":"msg_a","callID":"call_1"}}`, ses))
			return []events.Event{request, s.own(events.PermissionDecided{Permission: "per_1", Decision: events.Denied})}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			m, s := still(t), &eventBuilder{t: t}
			feed(t, m, s.begun()...)
			feed(t, m, s.opencode(true, "message.updated",
				fmt.Sprintf(`{"sessionID":%q,"info":{"id":"msg_a","role":"assistant","parentID":%q,%s}}`, ses, msg1, c.more)))
			if c.then != nil {
				feed(t, m, c.then(s)...)
			}
			step, got, err := m.UnfinishedStep(t.Context(), chatID)
			is.NoErr(err)
			is.Equal(got, c.want)
			is.Equal(step.EngineMessage == "msg_a", c.want)
		})
	}
}
