package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/store"
)

func TestTheLimitOfADayStopsEveryChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "daily", Scope: budget.OfDay, Cost: 10})
	s.Start()
	one, first := s.startTurn(1)
	two, second := s.startTurn(2)
	stopped := func(session string, n int) {
		t.Helper()
		expect.Eventually(t, "the turn is stopped", func() bool {
			requested, done := s.Events(events.ChatSubject("*", events.AbortRequested{}.Kind())),
				s.Events(events.ChatSubject("*", events.EffectDone{}.Kind()))
			return len(s.Requests("POST", session+"/abort")) == n && len(done) == len(requested)
		})
	}
	s.Happen(s.step(first, "tool-calls", 6, 1)...)
	s.awaitBudgetCheck()
	waits := s.step(second, "tool-calls", 0, 0)
	s.Happen(waits[:2]...) // it waits for its subagent
	s.Session("ses_child", second)
	s.Happen(s.step("ses_child", "tool-calls", 6, 1)...)
	request := s.moreRequest(1)
	is.Equal(request.Chat, two)
	stopped(second, 1)
	s.Happen(s.step(first, "tool-calls", 0.5, 1)...)
	stopped(first, 1)
	s.Happen(s.step(first, "tool-calls", 0.5, 1)...) // a further step, although the turn was stopped
	stopped(first, 2)
	s.awaitBudgetCheck()
	is.Equal(len(facts[events.AbortRequested](s, two)), 1)
	is.Equal(len(s.moreRequests()), 1)
	s.Happen(waits[2:]...)
	s.endSession(first)
	s.endSession(second)
	three := s.Chat("a third")
	is.Equal(s.awaitHeld(three).HeldBy, request.EnginePermission)

	s.decideMore(request, events.Authorized)
	got := s.awaitPrompts(5)
	by := map[string]string{}
	for _, p := range got[2:] {
		by[s.ChatOf(p.session)] = p.Parts[0].Text
	}
	is.Equal(by, map[string]string{one: outbox.BudgetPrompt, two: outbox.BudgetPrompt, three: "a third"})
	is.Equal(len(s.moreRequests()), 1)
}

func TestTwoChatsThatReachALimitAtOnceAskOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "daily", Scope: budget.OfDay, Tokens: 10})
	s.Start()
	one, first := s.startTurn(1)
	two, second := s.startTurn(2)
	s.Happen(append(s.step(first, "stop", 0, 6), s.step(second, "stop", 0, 6)...)...)
	s.endSession(first)
	s.endSession(second)
	s.Submit(one, "next")
	s.Submit(two, "next")
	is.Equal(s.awaitHeld(one).HeldBy, s.awaitHeld(two).HeldBy)
	s.awaitBudgetCheck()
	is.Equal(len(s.moreRequests()), 1)
	s.decideMore(s.moreRequests()[0], events.Authorized)
	is.Equal(texts(s.awaitPrompts(4)), []string{"work", "work", "next", "next"})
}

func TestANewDayReleasesMessages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "daily", Scope: budget.OfDay, Cost: 5})
	chat := s.Chat("late at night")
	yesterday := time.Now().Add(-24 * time.Hour)
	held, err := s.Budgets.Hold(t.Context(), chat, 3, yesterday,
		func(context.Context, budget.Span) (float64, float64, error) { return 7, 0, nil })
	is.NoErr(err)
	is.True(held != nil)
	is.Equal(len(s.moreRequests()), 1)
	s.Start()
	is.Equal(texts(s.awaitPrompts(1)), []string{"late at night"})
	expect.Eventually(t, "no request is pending", func() bool {
		return s.moreRequests()[0].Status == events.Expired
	})
	is.Equal(s.moreRequests()[0].Reason, "the day is over")
}

// A client chooses the ids of its messages, and may use the id of the prompt that resumes a chat.
func TestAUsedIDDoesNotPreventAResume(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.budget(budget.Budget{Name: "careful", Scope: budget.OfChat, Cost: 5})
	s.Start()
	one, first := s.startTurn(1)
	s.Happen(s.step(first, "tool-calls", 6, 1)...)
	firstRequest := s.moreRequest(1)
	_, second := s.startTurn(2)
	s.Happen(s.step(second, "tool-calls", 6, 1)...)
	other := s.moreRequest(2)
	s.endSession(first)
	s.endSession(second)
	_, _, err := s.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{
		Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: one, Message: store.RecordID("resume/" + firstRequest.EnginePermission + "/" + one),
		Parts: []events.Part{{Type: "text", Text: "mine"}},
	})
	is.NoErr(err)
	s.decideMore(firstRequest, events.Authorized)
	s.decideMore(other, events.Authorized)
	is.Equal(len(texts(s.awaitPrompts(4))), 4)
	resumed := map[string]string{}
	for _, p := range s.awaitPrompts(4)[2:] {
		resumed[p.session] = p.Parts[0].Text
	}
	is.Equal(resumed, map[string]string{first: "mine", second: outbox.BudgetPrompt})
}
