package account

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
)

// The process died right after the event: nothing took the sessions away.
func TestSessionsEndWithTheEventOfTheirPassword(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	s.add("bob", User)
	other, current, bobs := s.login("alice"), s.login("alice"), s.login("bob")
	running := reopen(t, s.server)
	running.run()
	_, err := s.record(t.Context(), "alice", root, events.PasswordChanged{Keep: current.Identity.Session})
	is.NoErr(err)
	expect.Eventually(t, "another process heard of it", func() bool { return !running.valid(other) })
	is.True(running.valid(current))
	started := reopen(t, s.server)
	is.True(!started.valid(other))
	is.True(started.valid(current))
	is.True(started.valid(bobs))
	_, err = started.Refresh(t.Context(), other.Identity, phone)
	is.Equal(err, ErrToken)
	later := started.login("alice")

	// A session that is over is not brought back by keeping it.
	_, err = s.record(t.Context(), "alice", root, events.PasswordChanged{Keep: other.Identity.Session})
	is.NoErr(err)
	started = reopen(t, s.server)
	is.True(!started.valid(other))
	is.True(!started.valid(current))
	is.True(!started.valid(later))
	list, err := started.Sessions(t.Context(), "alice")
	is.NoErr(err)
	is.Equal(len(list), 0)
	is.True(started.valid(started.login("alice")))
}

// Who keeps one session through several passwords, keeps it; another role ends it all the same.
func TestKeptSessionEndsWithTheRole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("root", Admin)
	s.add("alice", User)
	current := s.login("alice")
	for range 2 {
		_, err := s.SetPassword(t.Context(), SetPassword{Command: root, Account: "alice", Password: "battery staple",
			Keep: current.Identity.Session})
		is.NoErr(err)
		is.True(s.valid(current))
		is.True(reopen(t, s.server).valid(current))
	}
	_, err := s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Role: ptr(Agent)})
	is.NoErr(err)
	is.True(!s.valid(current))
	is.True(!reopen(t, s.server).valid(current))
}

func TestClientThatHangsUpDoesNotKeepSessionsAlive(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	tokens := []Token{s.login("alice"), s.login("alice"), s.login("alice")}
	ctx, hangUp := context.WithCancel(t.Context())
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	began := make(chan bool)
	go s.secrets.Watch(watching, "session", func(key string, value []byte) error {
		if key == "" {
			close(began)
		} else if value == nil {
			hangUp() // when the first session is taken away
		}
		return nil
	})
	<-began
	_, err := s.SetPassword(ctx, SetPassword{Command: handlers.Command{Actor: "user:alice"}, Account: "alice",
		Password: "battery staple"})
	is.NoErr(err)
	for _, token := range tokens {
		is.True(!s.valid(token))
		is.True(!reopen(t, s.server).valid(token))
	}
	is.Equal(len(of[events.SessionClosed](s)), len(tokens))
	_, err = s.tryLogin("alice", "battery staple")
	is.NoErr(err)
}
