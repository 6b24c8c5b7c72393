package exec

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// fill takes n slots for commands of an account, and returns the functions that free them.
func fill(t *testing.T, s *shares, most int, chat func(i int) string, owner string) (leave []func()) {
	t.Helper()
	for i := range most {
		l, err := s.take(t.Context(), chat(i), owner, false)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	return leave
}

// waits reports whether a command of the chat has to wait.
func waits(s *shares, chat, owner string) bool {
	limits := limitsOf(chat, owner, false)
	_, ok := s.tryTake(limits)
	if ok {
		s.leave(limits)
	}
	return !ok
}

func TestOneChatLeavesSlotsForOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var s shares
	leave := fill(t, &s, chatShare, func(int) string { return "chat1" }, "ann")
	is.True(waits(&s, "chat1", "ann"))
	is.True(!waits(&s, "chat2", "ann"))
	next := make(chan func())
	go func() {
		l, _ := s.take(t.Context(), "chat1", "ann", false)
		next <- l
	}()
	leave[0]()
	(<-next)()
	for _, l := range leave[1:] {
		l()
	}
	is.Equal(len(s.held), 0)
}

func TestOneAccountLeavesSlotsForOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var s shares
	leave := fill(t, &s, accountShare, func(i int) string { return fmt.Sprint("chat", i/chatShare) }, "ann")
	is.True(waits(&s, "another", "ann"))
	is.True(!waits(&s, "another", "bob"))
	is.True(!waits(&s, "another", "")) // a chat without an owner
	leave[0]()
	is.True(!waits(&s, "another", "ann"))
}

func TestLastingCommandsAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := shares{patience: time.Millisecond}
	var leave func()
	for range lastingChatShare {
		var err error
		leave, err = s.take(t.Context(), "chat1", "ann", true)
		is.NoErr(err)
	}
	_, err := s.take(t.Context(), "chat1", "ann", true)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "A chat may have 8 detached commands and shells")
	is.True(!waits(&s, "chat1", "ann"))
	_, err = s.take(t.Context(), "chat2", "ann", true)
	is.NoErr(err)
	leave()
	_, err = s.take(t.Context(), "chat1", "ann", true)
	is.NoErr(err)
	for i := 1; i < lastingAccountShare-lastingChatShare; i++ {
		_, err = s.take(t.Context(), fmt.Sprint("chat", 2+i/lastingChatShare), "ann", true)
		is.NoErr(err)
	}
	_, err = s.take(t.Context(), "chat9", "ann", true)
	is.True(err != nil)
	is.True(!waits(&s, "chat9", "ann")) // other commands still get slots
	_, err = s.take(t.Context(), "chat9", "bob", true)
	is.NoErr(err)
}

func TestACommandIsRefusedWhenTooManyWait(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var s shares
	fill(t, &s, accountShare, func(i int) string { return fmt.Sprint("chat", i/chatShare) }, "ann")
	waiting := make(chan error)
	count := func(kind string) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.held[kind]
	}
	wait := func(chat string, most int) {
		for range most {
			go func() { _, err := s.take(ctx, chat, "ann", false); waiting <- err }()
		}
		expect.Eventually(t, "they wait", func() bool { return count("waiting/chat/"+chat) == most })
	}
	refuses := func(chat string) {
		t.Helper()
		soon, cancel := context.WithTimeout(ctx, time.Minute) // a waiting command would get no error
		defer cancel()
		_, err := s.take(soon, chat, "ann", false)
		is.True(err != nil)
		expect.Contains(t, err.Error(), "Too many commands wait already")
	}
	wait("chat0", waitingChatShare)
	refuses("chat0")
	wait("chat1", waitingAccountShare-waitingChatShare)
	refuses("chat2")
	leave, err := s.take(ctx, "chat9", "bob", false)
	is.NoErr(err)
	leave()

	cancel()
	for range waitingAccountShare {
		is.NoErr(<-waiting)
	}
	is.Equal(count("waiting/account/ann"), 0)
}
