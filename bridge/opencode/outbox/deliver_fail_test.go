package outbox_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

func TestDeliveryIsTriedAgainAndThenGivenUp(t *testing.T) {
	for _, at := range []string{"/prompt_async", "/session"} {
		t.Run(at[1:], func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s, _ := connected(t)
			s.RefuseNext("POST", at, 2, 503)
			chat := s.Chat("hello")
			expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
			is.Equal(len(s.Requests("POST", at)), 3)
			is.Equal(len(facts[events.MessageSending](s, chat)), 1)

			s.RefuseNext("POST", at, 99, 503)
			doomed := s.Chat("hello")
			expect.Eventually(t, "it failed", func() bool { return len(facts[events.MessageFailed](s, doomed)) == 1 })
			failed := facts[events.MessageFailed](s, doomed)[0]
			is.Equal(failed.Domain, "infrastructure")
			expect.Contains(t, failed.Error, "503")
			is.Equal(len(s.Requests("POST", at)), 6) // three tries for each message
		})
	}
}

func TestAMessageIsTriedAtOnceWhenOpenCodeIsBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.RefuseNext("POST", "/prompt_async", 99, 503)
	r := s.Start(func(b *outbox.Outbox) { b.RetryAfter = []time.Duration{time.Hour, time.Hour} })
	chat := s.Chat("hello")
	expect.Eventually(t, "it was tried", func() bool { return len(s.Requests("POST", "/prompt_async")) == 1 })
	s.Reconnected(r, func() { s.RefuseNext("POST", "/prompt_async", 0, 503) })
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
	is.Equal(len(s.Requests("POST", "/prompt_async")), 2)
}

func TestNoTryIsUsedUpWhileOpenCodeIsAway(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	r := s.Start(func(b *outbox.Outbox) { b.RetryAfter = []time.Duration{time.Millisecond} })
	var tries atomic.Int64
	s.RefuseWith(func(q bridgetest.Request) int {
		if !strings.HasSuffix(q.Path, "/prompt_async") || tries.Add(1) > 1 {
			return 0
		}
		s.Disconnect()
		expect.Eventually(t, "the cut is noticed", func() bool { return !r.Ingest.Condition().Connected })
		return 503
	})
	chat := s.Chat("hello")
	expect.Eventually(t, "it was tried, and OpenCode stays away for longer than the pause", func() bool {
		return tries.Load() == 1 && len(s.Requests("GET", "/global/event")) > 20
	})
	s.Reconnect()
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
	is.Equal(tries.Load(), int64(2))
}

func TestARefusedMessageFailsAtOnceAndTheNextGoesOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.RefuseNext("POST", "/prompt_async", 1, 400)
	s.Start(func(b *outbox.Outbox) { b.RetryAfter = []time.Duration{time.Hour} })
	chat := s.Chat("bad", "good")
	expect.Eventually(t, "the next is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
	is.Equal(len(facts[events.MessageFailed](s, chat)), 1)
	is.Equal(texts(s.promptsReceived()), []string{"bad", "good"})
}

func TestAQueuedMessageWaitsWhileCommandsAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.Start(func(b *outbox.Outbox) { b.RetryAfter = []time.Duration{time.Millisecond} })
	chat := s.Chat("one", "two")
	p := s.awaitPrompts(1)
	var refused atomic.Int64
	refuse := func() error { refused.Add(1); return log.Unavailable("The disk is full.") }
	s.Refuse.Store(&refuse)
	s.Answer(p[0].session, p[0].MessageID)
	expect.Eventually(t, "it is tried more often than a message that OpenCode refuses",
		func() bool { return refused.Load() > 3 })
	s.RefuseNext("POST", "/prompt_async", 1, 503) // none of those tries counts
	s.Refuse.Store(nil)
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 2 })
	is.Equal(len(facts[events.MessageFailed](s, chat)), 0)
}

func TestAChatOfAnotherWorkspaceIsNotSent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.Start()
	chat := s.Chat("one")
	p := s.awaitPrompts(1)
	s.Answer(p[0].session, p[0].MessageID)
	s.Drained()
	s.Locked(func() {
		session := s.Sessions[p[0].session]
		session.Directory, session.Raw = "/elsewhere", bytes.ReplaceAll(session.Raw, []byte(`"/workspace"`),
			[]byte(`"/elsewhere"`))
		s.Sessions[p[0].session] = session
	})
	s.Submit(chat, "two")
	expect.Eventually(t, "it has failed", func() bool { return len(facts[events.MessageFailed](s, chat)) == 1 })
	expect.Contains(t, facts[events.MessageFailed](s, chat)[0].Error,
		"this chat works in /elsewhere, and PocketCoder was started in /workspace; start it with --workspace /elsewhere")
	is.Equal(len(s.promptsReceived()), 1)
}

func TestALostSessionIsReplaced(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.Start()
	chat := s.Chat("one")
	p := s.awaitPrompts(1)
	s.Answer(p[0].session, p[0].MessageID)
	s.Drained()
	s.Locked(func() { delete(s.Sessions, p[0].session) })
	s.Submit(chat, "two")
	p = s.awaitPrompts(2)
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 2 })
	is.True(p[1].session != p[0].session)
	is.Equal(s.ChatOf(p[1].session), chat)
	is.Equal(facts[events.SessionBound](s, chat)[1].Session, p[1].session)
	all, err := s.Model.Messages(t.Context(), chat)
	is.NoErr(err)
	is.Equal(all[0].Notice, "")
	expect.Contains(t, all[2].Notice, "does not know what was written before") // after the answer
}

func TestASessionLostBetweenSendingAndDeliveredIsReplaced(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	var first atomic.Bool
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, "/prompt_async") && first.CompareAndSwap(false, true) {
			s.Locked(func() { delete(s.Sessions, strings.Split(r.Path, "/")[2]) })
		}
		return 0
	})
	s.Start()
	chat := s.Chat("hello")
	p := s.awaitPrompts(2)
	expect.Eventually(t, "it is delivered", func() bool { return len(facts[events.MessageDelivered](s, chat)) == 1 })
	is.True(p[1].session != p[0].session)
	is.Equal(len(facts[events.MessageFailed](s, chat)), 0)
}
