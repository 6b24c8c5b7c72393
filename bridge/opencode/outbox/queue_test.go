package outbox_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
)

// queueMessages submits messages to a chat with a running turn, and returns their ids.
func (s *system) queueMessages(chatID string, messages ...string) (ids []string) {
	s.T.Helper()
	for _, text := range messages {
		id, _, err := s.Chats.SubmitMessage(s.T.Context(), chat.SubmitMessage{
			Command: handlers.Command{Actor: events.UserActor("u1")}, Chat: chatID, Parts: []events.Part{{Type: "text", Text: text}},
		})
		s.Must(err)
		ids = append(ids, id)
	}
	return ids
}

func (s *system) change(c chat.ChangeMessage) {
	s.T.Helper()
	_, err := s.Chats.ChangeMessage(s.T.Context(), c)
	s.Must(err)
}

func (s *system) withdraw(chatID, message string) {
	s.T.Helper()
	_, err := s.Chats.WithdrawMessage(s.T.Context(), chat.WithdrawMessage{Chat: chatID, Message: message})
	s.Must(err)
}

// answerAll answers n prompts one after the other, and returns the texts of all prompts.
func (s *system) answerAll(n int) []string {
	s.T.Helper()
	for i := range n {
		p := s.awaitPrompts(i + 1)[i]
		s.Answer(p.session, p.MessageID)
		s.Drained()
	}
	return texts(s.promptsReceived())
}

func TestTheQueueIsSentAsThePersonChangedIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.Start()
	chatID := s.Chat("one")
	s.awaitPrompts(1)
	ids := s.queueMessages(chatID, "two", "three", "four", "five")
	s.change(chat.ChangeMessage{Chat: chatID, Message: ids[2], Before: &ids[0]})
	s.change(chat.ChangeMessage{Chat: chatID, Message: ids[0], Parts: []events.Part{{Type: "text", Text: "two, edited"}}})
	s.withdraw(chatID, ids[1])
	r.Stop() // a new process reads the queue from the log
	s.Start().Connected()
	is.Equal(s.answerAll(4), []string{"one", "four", "two, edited", "five"})
	s.Drained()
	is.Equal(len(facts[events.MessageSending](s, chatID)), 4)
	_, err := s.Chats.ChangeMessage(t.Context(), chat.ChangeMessage{Chat: chatID, Message: ids[0],
		Parts: []events.Part{{Type: "text", Text: "too late"}}})
	is.Equal(handlers.CodeOf(err), handlers.Conflict)
}

func TestASteeredMessageJoinsTheRunningTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.Start(func(b *outbox.Outbox) { b.MaxTurns = 1 }) // a steered message needs no turn of its own
	chatID := s.Chat("one")
	first := s.awaitPrompts(1)[0]
	ids := s.queueMessages(chatID, "two", "three", "four")
	s.change(chat.ChangeMessage{Chat: chatID, Message: ids[2], Delivery: events.DeliverySteer})
	p := s.awaitPrompts(2)
	is.Equal(texts(p), []string{"one", "four"})
	is.Equal(p[1].session, first.session)
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chatID)) == 2 })
	s.Drained()
	is.Equal(len(s.promptsReceived()), 2) // the others wait

	s.Answer(first.session, first.MessageID) // the answer to the first is not the end of the turn
	s.Drained()
	is.Equal(len(s.promptsReceived()), 2)
	s.Answer(p[1].session, p[1].MessageID)
	is.Equal(texts(s.awaitPrompts(3)), []string{"one", "four", "two"})
}

func TestAStopHoldsTheQueueUntilTheNextMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		release func(s *system, chatID string, ids []string)
		want    []string
	}{
		"another message": {func(s *system, chatID string, _ []string) { s.queueMessages(chatID, "four") },
			[]string{"one", "two", "three", "four"}},
		"one is sent at once": {func(s *system, chatID string, ids []string) {
			s.change(chat.ChangeMessage{Chat: chatID, Message: ids[1], Delivery: events.DeliverySteer})
		}, []string{"one", "three", "two"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSystem(t)
			r := s.Start()
			chatID, session := s.startTurn(1)
			ids := s.queueMessages(chatID, "two", "three")
			s.abortTurn(chatID, "")
			expect.Eventually(t, "the turn is stopped", func() bool { return len(facts[events.EffectDone](s, chatID)) == 1 })
			s.endSession(session)
			r.Stop() // a new process holds them too
			s.Start().Connected()
			other := s.Chat("of another chat") // whose prompt comes after those of the queue, if it were sent
			s.awaitPrompts(2)
			is.Equal(len(facts[events.MessageSending](s, chatID)), 1)
			is.Equal(len(facts[events.MessageSending](s, other)), 1)
			c.release(s, chatID, ids)
			sent := func() (all []string) {
				for _, p := range s.promptsReceived() {
					if p.session == session {
						all = append(all, p.Parts[0].Text)
					}
				}
				return all
			}
			for n := 2; n <= len(c.want); n++ {
				expect.Eventually(t, "the next is sent", func() bool { return len(sent()) == n })
				last := s.promptsReceived()[n] // after that of the other chat
				s.Answer(session, last.MessageID)
				s.Drained()
			}
			is.Equal(sent()[1:], c.want[1:])
		})
	}
}

func TestASteeredMessageIsSentAgainAfterARestart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.Start(func(b *outbox.Outbox) { b.RetryAfter = []time.Duration{time.Hour} })
	chatID := s.Chat("one")
	first := s.awaitPrompts(1)[0]
	s.Drained()
	s.RefuseNext("POST", "/prompt_async", 1, 503)
	_, _, err := s.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{Chat: chatID,
		Parts: []events.Part{{Type: "text", Text: "two"}}, Delivery: events.DeliverySteer})
	is.NoErr(err)
	s.awaitPrompts(2)
	r.Stop()
	s.Start().Connected()
	p := s.awaitPrompts(3)
	is.Equal(p[1].MessageID, p[2].MessageID)
	is.Equal(p[2].session, first.session)
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chatID)) == 2 })
	is.Equal(len(facts[events.MessageSending](s, chatID)), 2)
}

func TestAMessageMovedToTheFrontStillWaitsForAnEarlierRevert(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	var open atomic.Bool
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/revert") && !open.Load() {
			return 503
		}
		return 0
	})
	s.Start()
	chatID := s.Chat("one")
	first := s.awaitPrompts(1)[0]
	ids := s.queueMessages(chatID, "two")
	_, err := s.Chats.Revert(t.Context(), chat.Revert{Chat: chatID, Message: first.MessageID})
	is.NoErr(err)
	ids = append(ids, s.queueMessages(chatID, "three")...)
	s.change(chat.ChangeMessage{Chat: chatID, Message: ids[1], Before: &ids[0]})
	s.Answer(first.session, first.MessageID)
	for n := len(s.Requests("POST", "/revert")); len(s.Requests("POST", "/revert")) < n+3; {
		s.Drained()
	}
	is.Equal(len(s.promptsReceived()), 1)
	open.Store(true)
	is.Equal(texts(s.awaitPrompts(2)), []string{"one", "three"})
}
