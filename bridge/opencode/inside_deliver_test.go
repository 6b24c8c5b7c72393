package opencode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
)

type prompted struct {
	MessageID string
	Parts     []struct{ ID, Text string }
	Model     struct{ ProviderID, ModelID string }
	session   string
}

// promptsReceived are the prompts OpenCode got, in order.
func (s *system) promptsReceived() (all []prompted) {
	for _, r := range s.requests("POST", "/prompt_async") {
		var p prompted
		s.must(json.Unmarshal([]byte(r.Body), &p))
		p.session = strings.Split(r.Path, "/")[2]
		all = append(all, p)
	}
	return all
}

func (s *system) prompted(n int) []prompted {
	s.t.Helper()
	expect.Eventually(s.t, fmt.Sprintf("%d prompts", n), func() bool { return len(s.promptsReceived()) >= n })
	return s.promptsReceived()
}

func texts(all []prompted) (list []string) {
	for _, p := range all {
		list = append(list, p.Parts[0].Text)
	}
	return list
}

// refusing answers the first n requests whose path ends so with a status.
func (o *outside) refusing(method, suffix string, n int, status int) {
	var left atomic.Int64
	left.Store(int64(n))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuse = func(r request) int {
		if r.Method == method && strings.HasSuffix(r.Path, suffix) && left.Add(-1) >= 0 {
			return status
		}
		return 0
	}
}

func TestAMessageIsDeliveredUnderOurIDs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	chat := s.chat("hello")
	s.start()
	p := s.prompted(1)[0]
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
	sending := facts[events.MessageSending](s, chat)
	is.Equal(len(sending), 1)
	is.Equal(p.MessageID, sending[0].EngineMessage)
	is.Equal(p.Parts[0].ID, sending[0].EngineParts[0])
	is.Equal(p.Parts[0].Text, "hello")
	is.Equal(p.session, sending[0].Session)
	is.Equal(s.chatOf(p.session), chat)
	expect.Eventually(t, "OpenCode's own is in the log", func() bool { return len(s.openCode(chat, "message.updated")) == 1 })
}

func TestARestartWhileSendingSendsTheSameAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	arrived, hold := make(chan bool), make(chan bool)
	var once atomic.Bool
	s.refuse = func(r request) int {
		if !strings.HasSuffix(r.Path, "/prompt_async") || !once.CompareAndSwap(false, true) {
			return 0
		}
		arrived <- true
		<-hold
		return 500
	}
	chat := s.chat("hello")
	r := s.start()
	<-arrived
	r.stop()
	close(hold)
	s.start()
	all := s.prompted(2)
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
	is.Equal(all[0].MessageID, all[1].MessageID)
	is.Equal(all[0].Parts, all[1].Parts)
	is.Equal(all[0].session, all[1].session)
	is.Equal(len(s.requests("POST", "/session")), 1)
	is.Equal(len(facts[events.MessageSending](s, chat)), 1)
	s.drained()
	is.Equal(len(s.promptsReceived()), 2)
}

func TestAMessageThatOpenCodeHasShownIsNotSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	arrived, hold := make(chan bool), make(chan bool)
	s.refuse = func(r request) int { // it takes the message, and the answer does not come back
		if strings.HasSuffix(r.Path, "/prompt_async") {
			var p prompted
			_ = json.Unmarshal([]byte(r.Body), &p)
			session := strings.Split(r.Path, "/")[2]
			s.happen(s.durably(session, "message.updated", userMessage(session, p.MessageID))...)
			s.happen(plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"busy"}}`, session)))
			arrived <- true
			<-hold
			return 500
		}
		return 0
	}
	chat := s.chat("hello")
	r := s.start()
	<-arrived
	s.drained()
	r.stop()
	close(hold)
	s.start().connected()
	p := s.promptsReceived()
	s.answer(p[0].session, p[0].MessageID)
	s.drained()
	is.Equal(len(s.promptsReceived()), 1)
	is.Equal(len(facts[events.MessageFailed](s, chat)), 0)
}

func TestMessagesOfAChatAreOneTurnAtATimeInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.start()
	one := s.chat("one", "two", "three")
	other := s.chat("other")
	p := s.prompted(2)
	for i, text := range []string{"one", "two", "three"} {
		var now prompted
		expect.Eventually(t, "the prompt "+text, func() bool {
			p = slices.DeleteFunc(s.promptsReceived(), func(p prompted) bool { return s.sessionChat(p.session) != one })
			return len(p) > i
		})
		now = p[i]
		is.Equal(now.Parts[0].Text, text)
		s.drained()
		is.Equal(len(facts[events.MessageSending](s, one)), i+1) // the next waits for the turn to end
		s.answer(now.session, now.MessageID)
	}
	is.Equal(len(facts[events.MessageSending](s, other)), 1)
	is.Equal(len(s.requests("POST", "/session")), 2) // one for each chat
}

// sessionChat is the chat of a session, "" while it is not known.
func (s *system) sessionChat(session string) string {
	row, _, err := s.model.Session(s.t.Context(), session)
	s.must(err)
	return row.Chat
}

func TestNoMoreTurnsRunThanAllowed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.silent = true // a turn that has not shown yet counts too
	chats := []string{s.chat("a"), s.chat("b"), s.chat("c")}
	s.start(func(b *bridge) { b.MaxTurns = 2 })
	delivered := func() (n int) {
		for _, c := range chats {
			n += len(facts[events.MessageDelivered](s, c))
		}
		return n
	}
	s.showSessions(2)
	expect.Eventually(t, "two are delivered", func() bool { return delivered() == 2 })
	for range 20 { // a while
		s.drained()
	}
	is.Equal(len(s.promptsReceived()), 2)
	is.Equal(len(s.requests("POST", "/session")), 2) // the third has not begun
	first := s.promptsReceived()[0]
	s.happen(s.durably(first.session, "message.updated", userMessage(first.session, first.MessageID))...)
	s.answer(first.session, first.MessageID)
	s.showSessions(3)
	expect.Eventually(t, "the third is delivered", func() bool { return delivered() == 3 })
	is.Equal(texts(s.promptsReceived())[2], "c") // the first two start together
}

// Chats of the machine's operator have no owner and no share.
func TestAnAccountLeavesTurnsForOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := &deliveries{Outbox: &Outbox{MaxTurns: 8}, busy: map[string]string{"chat1": "bob", "chat2": "bob"}}
	is.True(d.mayRun("bob", map[string]int{"bob": 3}))
	is.True(!d.mayRun("bob", map[string]int{"bob": 4})) // six with those that begin
	is.True(d.mayRun("ann", map[string]int{"bob": 4}))
	is.True(d.mayRun("", map[string]int{"": 5}))
	is.True(!d.mayRun("ann", map[string]int{"bob": 4, "": 2})) // eight in all
	d.MaxTurns = 1
	d.busy = nil
	is.True(d.mayRun("bob", nil))
}

// showSessions streams the beginning of the sessions made so far, once there are n: OpenCode was silent about them.
func (s *system) showSessions(n int) {
	s.t.Helper()
	expect.Eventually(s.t, fmt.Sprintf("%d sessions", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		made := 0
		for _, h := range s.history {
			made += bytes.Count(h, []byte(`"session.created.1"`))
		}
		return made >= n
	})
	var frames [][]byte
	s.mu.Lock()
	for _, h := range s.history {
		var e struct {
			ID, Type  string
			Aggregate string `json:"aggregate_id"`
			Seq       int64
			Data      json.RawMessage
		}
		_ = json.Unmarshal(h, &e)
		if e.Type == "session.created.1" {
			frames = append(frames, fmt.Appendf(nil, `{"payload":{"type":"sync","id":%q,"syncEvent":{"id":%q,"type":%q,"seq":%d,"aggregateID":%q,"data":%s}}}`,
				e.ID, e.ID, e.Type, e.Seq, e.Aggregate, e.Data))
		}
	}
	s.mu.Unlock()
	s.say(frames...)
}

func TestTwoQuickFirstMessagesShareASession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.silent = true
	chat := s.chat("one", "two")
	s.start().connected()
	expect.Eventually(t, "a session is made", func() bool { return len(s.requests("POST", "/session")) > 0 })
	for range 20 { // a while; and OpenCode's word of it has not come
		s.drained()
	}
	s.showSessions(1)
	p := s.prompted(1)
	expect.Eventually(t, "the first is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
	s.happen(s.durably(p[0].session, "message.updated", userMessage(p[0].session, p[0].MessageID))...)
	s.answer(p[0].session, p[0].MessageID)
	p = s.prompted(2)
	is.Equal(texts(p), []string{"one", "two"})
	is.Equal(p[1].session, p[0].session)
	is.Equal(len(s.requests("POST", "/session")), 1)
}
