package exec

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

// fill takes places for as many commands of an account, and returns the functions that free them.
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

func TestOneChatLeavesPlacesForOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var s shares
	leave := fill(t, &s, chatShare, func(int) string { return "chat1" }, "")
	is.True(waits(&s, "chat1", ""))
	is.True(!waits(&s, "chat2", ""))
	next := make(chan func())
	go func() {
		l, _ := s.take(t.Context(), "chat1", "", false)
		next <- l
	}()
	leave[0]()
	(<-next)()
	for _, l := range leave[1:] {
		l()
	}
	is.Equal(len(s.held), 0)
}

func TestOneAccountLeavesPlacesForOthers(t *testing.T) {
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

// Nothing ends a detached command or a shell, so that one more would wait for ever.
func TestMoreLastingCommandsThanAChatMayHaveAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var s shares
	var leave func()
	for range lastingShare {
		var err error
		leave, err = s.take(t.Context(), "chat1", "ann", true)
		is.NoErr(err)
	}
	_, err := s.take(t.Context(), "chat1", "ann", true)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "a chat may have 8 detached commands and shells")
	is.True(!waits(&s, "chat1", "ann"))
	_, err = s.take(t.Context(), "chat2", "ann", true)
	is.NoErr(err)
	leave()
	_, err = s.take(t.Context(), "chat1", "ann", true)
	is.NoErr(err)
}
