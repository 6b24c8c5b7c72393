package outbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func (s *system) budget(b budget.Budget) {
	s.T.Helper()
	_, _, err := s.Budgets.Records.Save(s.T.Context(), record.Save{Command: handlers.Command{Actor: events.UserActor("root")},
		Collection: budget.Collection, New: true, Upsert: true, Set: record.Fields(map[string]any{"name": b.Name,
			"scope": b.Scope, "chat": b.Chat, "user": b.User, "cost": b.Cost, "tokens": b.Tokens, "active": true})})
	s.Must(err)
}

// step returns the frames of a finished assistant message and its cost.
func (s *system) step(session, finish string, cost float64, tokens int) [][]byte {
	id, parent := client.NewID("msg", time.Now()), "msg_0"
	for _, p := range s.promptsReceived() {
		if p.session == session {
			parent = p.MessageID
		}
	}
	info := `{"sessionID":%q,"info":{"id":%q,"sessionID":%q,"role":"assistant","parentID":%q,"time":{"created":1%s},"finish":%q,"cost":%g,"tokens":{"input":%d}}}`
	return append(s.Durably(session, "message.updated", fmt.Sprintf(info, session, id, session, parent, "", "", 0.0, 0)),
		s.Durably(session, "message.updated", fmt.Sprintf(info, session, id, session, parent, `,"completed":2`, finish, cost,
			tokens))...)
}

// endSession sends the idle status of an aborted session.
func (s *system) endSession(session string) {
	s.Happen(bridgetest.Plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`, session)))
}

// startTurn creates a chat with a running turn, and returns its session. It is the nth prompt.
func (s *system) startTurn(n int) (chat, session string) {
	s.T.Helper()
	chat = s.Chat("work")
	session = s.awaitPrompts(n)[n-1].session
	s.awaitDelivered(chat, 1)
	return chat, session
}

// awaitDelivered waits until n messages of a chat are delivered.
func (s *system) awaitDelivered(chat string, n int) {
	s.T.Helper()
	expect.Eventually(s.T, fmt.Sprintf("%d are delivered", n), func() bool {
		return len(facts[events.MessageDelivered](s, chat)) == n
	})
	s.Drained()
}

// moreRequests returns the requests for more of all chats, in order.
func (s *system) moreRequests() (all []projections.Permission) {
	s.T.Helper()
	last, err := s.Log.Last(s.T.Context())
	s.Must(err)
	s.Must(s.Model.Wait(s.T.Context(), last))
	rows, err := s.Model.Permissions(s.T.Context(), "", "")
	s.Must(err)
	for _, p := range rows {
		if p.Permission == events.KindBudget {
			all = append(all, p)
		}
	}
	return all
}

// moreRequest waits for the nth request for more, from 1.
func (s *system) moreRequest(n int) projections.Permission {
	s.T.Helper()
	expect.Eventually(s.T, fmt.Sprintf("ask %d for more", n), func() bool { return len(s.moreRequests()) >= n })
	return s.moreRequests()[n-1]
}

func (s *system) decideMore(p projections.Permission, d events.Decision) {
	s.T.Helper()
	_, err := s.Permissions.Decide(s.T.Context(), permission.Decide{
		Command: handlers.Command{Actor: events.UserActor("u1")}, Admin: true, Chat: p.Chat, Permission: p.EnginePermission, Decision: d,
	})
	s.Must(err)
}

// awaitBudgetCheck waits until the outbox has handled every step so far.
func (s *system) awaitBudgetCheck() {
	s.T.Helper()
	s.Drained()
	var last uint64
	for _, e := range s.Events(events.ChatOpenCodeSubject("*", "message.updated")) {
		last = e.Seq
	}
	expect.Eventually(s.T, "every step is looked at", func() bool {
		done, err := s.Log.LastAcked(s.T.Context(), outbox.BudgetConsumer)
		s.Must(err)
		return done >= last
	})
}

// awaitHeld waits until a message of a chat is held, and returns the newest held one.
func (s *system) awaitHeld(chat string) (m projections.ShownMessage) {
	s.T.Helper()
	expect.Eventually(s.T, "a message is held", func() bool {
		all, err := s.Model.Messages(s.T.Context(), chat)
		s.Must(err)
		for _, one := range all {
			if one.Held != "" {
				m = one
			}
		}
		return m.Held != ""
	})
	return m
}

func TestAReachedBudgetStopsTheTurnAndAsksOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "careful", Scope: budget.OfChat, Cost: 5})
	s.Start()
	chat, session := s.startTurn(1)
	s.Happen(s.step(session, "tool-calls", 3, 10)...)
	s.awaitBudgetCheck()
	is.Equal(len(s.moreRequests()), 0)
	is.Equal(len(s.Requests("POST", "/abort")), 0)

	crossing := s.step(session, "tool-calls", 2.5, 10)
	s.Happen(crossing...)
	request := s.moreRequest(1)
	is.Equal(request.Chat, chat)
	is.Equal(request.Status, events.Draft)
	is.Equal(request.Message, "This chat has cost US$5.50; the budget “careful” allows US$5.00. Allow US$5.00 more?")
	var metadata map[string]any
	s.Must(json.Unmarshal([]byte(request.Metadata), &metadata))
	delete(metadata, "budget")
	is.Equal(metadata, map[string]any{"name": "careful", "scope": "chat", "period": "", "unit": "cost", "limit": 5.0,
		"spent": 5.5, "more": 5.0})
	expect.Eventually(t, "the turn is stopped", func() bool { return len(s.Requests("POST", session+"/abort")) == 1 })
	s.Say(crossing...) // a redelivery
	s.endSession(session)
	s.Submit(chat, "and this")
	m := s.awaitHeld(chat)
	is.Equal([]any{m.UserStatus, m.HeldBy, m.Held}, []any{"pending", request.EnginePermission,
		"The budget “careful” is used up: it waits for a decision about more."})
	row, _, err := s.Model.Chat(t.Context(), chat)
	is.NoErr(err)
	is.Equal(row.Turn, projections.TurnUser) // the chat waits for a person
	s.awaitBudgetCheck()
	is.Equal(len(s.moreRequests()), 1)
	is.Equal(len(s.awaitPrompts(1)), 1)

	s.decideMore(request, events.Authorized)
	s.awaitDelivered(chat, 2)
	s.Happen(s.step(session, "stop", 0.1, 1)...)
	s.endSession(session)
	is.Equal(texts(s.awaitPrompts(3)), []string{"work", "and this", outbox.BudgetPrompt})
	resumed := facts[events.MessageSubmitted](s, chat)
	is.Equal(resumed[2].Resumes, request.EnginePermission)
	is.Equal(len(facts[events.AbortRequested](s, chat)), 1)
	is.Equal(len(facts[events.MessageHeld](s, chat)), 1)
	all, err := s.Model.Messages(t.Context(), chat)
	is.NoErr(err)
	for _, m := range all {
		is.Equal(m.Held, "")
	}

	// the limit is now 10, and another 5 would not be enough
	s.Happen(s.step(session, "tool-calls", 14.5, 1)...)
	second := s.moreRequest(2)
	is.Equal(second.Message, "This chat has cost US$20.10; the budget “careful” allows US$10.00. Allow US$15.00 more?")
	is.Equal(len(s.moreRequests()), 2)
}

func TestATurnThatIsOverIsNotResumed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "careful", Scope: budget.OfChat, Tokens: 100})
	s.Start()
	chat, session := s.startTurn(1)
	s.Happen(s.step(session, "stop", 0, 150)...)
	s.endSession(session)
	request := s.moreRequest(1)
	is.Equal(request.Message, "This chat has used 150 tokens; the budget “careful” allows 100. Allow 100 more?")
	s.decideMore(request, events.Authorized)
	s.Submit(chat, "next")
	is.Equal(texts(s.awaitPrompts(2)), []string{"work", "next"})
	is.Equal(len(s.Requests("POST", "/abort")), 0)
}

func TestATurnThatAPersonStopsIsNotResumed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "careful", Scope: budget.OfChat, Cost: 5})
	s.Start()
	chatID, session := s.startTurn(1)
	var may atomic.Bool
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/abort") && !may.Load() {
			return 500
		}
		return 0
	})
	_, err := s.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: chatID})
	is.NoErr(err)
	expect.Eventually(t, "it is tried", func() bool { return len(s.Requests("POST", "/abort")) > 0 })
	s.Happen(s.step(session, "tool-calls", 6, 1)...)
	s.awaitBudgetCheck()
	may.Store(true)
	s.decideMore(s.moreRequest(1), events.Authorized)
	s.endSession(session)
	s.Submit(chatID, "next")
	is.Equal(texts(s.awaitPrompts(2)), []string{"work", "next"})
	is.Equal(len(facts[events.AbortRequested](s, chatID)), 1)
}

func TestADeniedMessageWaitsUntilTheLimitIsRaised(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "daily", Scope: budget.OfDay, Cost: 5})
	s.Start()
	chat, session := s.startTurn(1)
	s.Happen(s.step(session, "tool-calls", 5, 1)...)
	request := s.moreRequest(1)
	s.endSession(session)
	s.Submit(chat, "one")
	s.awaitHeld(chat)
	s.decideMore(request, events.Denied)
	expect.Eventually(t, "it says why it waits on", func() bool {
		return s.awaitHeld(chat).Held == "The budget “daily” is used up and more was denied: it waits until the limit is raised or the day (UTC) is over."
	})
	is.Equal(len(s.moreRequests()), 1)

	s.Submit(chat, "two")
	second := s.moreRequest(2)
	expect.Eventually(t, "both wait for it", func() bool {
		all, err := s.Model.Messages(t.Context(), chat)
		is.NoErr(err)
		waiting := 0
		for _, m := range all {
			if m.HeldBy == second.EnginePermission {
				waiting++
			}
		}
		return waiting == 2
	})
	s.budget(budget.Budget{Name: "daily", Scope: budget.OfDay, Cost: 50})
	is.Equal(texts(s.awaitPrompts(2)), []string{"work", "one"}) // the turn is not resumed
	expect.Eventually(t, "no request is pending", func() bool {
		return s.moreRequests()[1].Status == events.Expired
	})
	is.Equal(s.moreRequests()[1].Reason, "the limit was raised")
	is.Equal(len(s.moreRequests()), 2)
}

func TestWithoutProgressOtherDecisionsThanThoseOfBudgetsAreSkipped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "careful", Scope: budget.OfChat, Cost: 5})
	r := s.Start()
	chatID, session := s.startTurn(1)
	for _, d := range []events.Data{
		events.PermissionRequested{Permission: "other", Type: "edit"},
		events.PermissionDecided{Permission: "other", Type: "edit", Decision: events.Authorized},
	} {
		e, err := events.New(chatID, events.UserActor("u1"), d)
		is.NoErr(err)
		_, err = s.Log.Append(t.Context(), e)
		is.NoErr(err)
	}
	s.Happen(s.step(session, "tool-calls", 6, 1)...)
	request := s.moreRequest(1)
	s.endSession(session)
	s.Drained()
	r.Stop()
	s.decideMore(request, events.Authorized)
	eventstest.DeleteConsumer(t, s.NC, outbox.BudgetDecisionsConsumer)
	s.Start().Connected()
	is.Equal(texts(s.awaitPrompts(2)), []string{"work", outbox.BudgetPrompt})
	js, err := jetstream.New(s.NC)
	is.NoErr(err)
	consumer, err := js.Consumer(t.Context(), log.EventsStream, outbox.BudgetDecisionsConsumer)
	is.NoErr(err)
	is.Equal(consumer.CachedInfo().Delivered.Consumer, uint64(1))
}

func TestAStepDuringARestartStopsTheTurn(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"OpenCode lives": false, "OpenCode dies too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			s.budget(budget.Budget{Name: "careful", Scope: budget.OfChat, Cost: 5})
			r := s.Start()
			chat, session := s.startTurn(1)
			s.awaitBudgetCheck()
			r.Stop()
			s.AppendUnsent(s.step(session, "tool-calls", 6, 1)...)
			if dies {
				s.Forget()
			}
			r = s.Start().Connected()
			request := s.moreRequest(1)
			s.awaitBudgetCheck()
			r.Stop()
			s.endSession(session)
			s.decideMore(request, events.Authorized)
			s.Start().Connected()
			is.Equal(texts(s.awaitPrompts(2)), []string{"work", outbox.BudgetPrompt})
			s.Drained()
			is.Equal(len(s.awaitPrompts(2)), 2)
			is.Equal(len(s.moreRequests()), 1)
			is.Equal(len(facts[events.AbortRequested](s, chat)), 1)
		})
	}
}
