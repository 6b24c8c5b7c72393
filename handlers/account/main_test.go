package account

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
)

// system is a store and the accounts on it, with a clock that stands still.
type system struct {
	*Accounts
	t      testing.TB
	server *server.Server
	time   time.Time
}

func start(t testing.TB) *system {
	t.Helper()
	return reopen(t, eventstest.Server(t, expect.MemoryDir(t)))
}

// reopen is another process on the same store, or the same one started again.
func reopen(t testing.TB, on *server.Server) *system {
	t.Helper()
	is := is.New(t)
	nc := eventstest.Conn(t, on)
	log := eventstest.Open(t, nc)
	secrets, err := secret.Open(t.Context(), nc, 1)
	is.NoErr(err)
	a, err := Open(t.Context(), log, secrets)
	is.NoErr(err)
	is.Equal(a.HashMemory, uint32(hashMemory))
	a.HashMemory = 64 // enough for all that does not depend on how long a hash takes
	s := &system{Accounts: a, t: t, server: on, time: time.Now().UTC().Round(0)}
	a.now = func() time.Time { return s.time }
	return s
}

// run keeps up with other processes until the test ends.
func (s *system) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			s.t.Error(err)
		}
	})
}

var (
	root  = handlers.Command{Actor: "user:root"}
	phone = events.Client{Address: "192.0.2.1", Device: "Phone/1"}
)

const password = "correct horse"

// add makes an account id@example.org.
func (s *system) add(id, role string) {
	s.t.Helper()
	_, _, err := s.CreateAccount(s.t.Context(), CreateAccount{Command: root, Account: id, Email: id + "@example.org",
		Name: id, Role: role, Password: password})
	is.New(s.t).NoErr(err)
}

func (s *system) tryLogin(id, password string) (Token, error) {
	return s.Login(s.t.Context(), Login{Identity: id + "@example.org", Password: password, Client: phone})
}

func (s *system) login(id string) Token {
	s.t.Helper()
	token, err := s.tryLogin(id, password)
	is.New(s.t).NoErr(err)
	return token
}

// valid says whether a token is.
func (s *system) valid(token Token) bool {
	s.t.Helper()
	_, err := s.Check(token.Text)
	is.New(s.t).True(err == nil || errors.Is(err, ErrToken))
	return err == nil
}

// ended says whether a session is over.
func (s *system) ended(token Token) bool {
	select {
	case <-s.Ended(token.Identity.Session):
		return true
	default:
		return false
	}
}

// history is every event of the log, decoded.
func (s *system) history() (all []events.Event, data []events.Data) {
	s.t.Helper()
	is := is.New(s.t)
	_, err := s.log.Fold(s.t.Context(), events.AllEvents, 0, func(e events.Event) error {
		d, err := events.Decode(e)
		all, data = append(all, e), append(data, d)
		return err
	})
	is.NoErr(err)
	return all, data
}

// of picks the facts of one kind out of the history.
func of[D events.Data](s *system) (found []D) {
	s.t.Helper()
	_, all := s.history()
	for _, d := range all {
		if d, ok := d.(D); ok {
			found = append(found, d)
		}
	}
	return found
}

// refusal is the code of a refused command and what it says, "" when it was not refused.
func refusal(t testing.TB, err error) (handlers.Code, string) {
	t.Helper()
	var r handlers.Refused
	if err != nil && !errors.As(err, &r) {
		t.Fatalf("not a refusal: %v", err)
	}
	return r.Code, r.Text
}

func ptr[T any](v T) *T { return &v }

func connect(t testing.TB, on *server.Server) *nats.Conn { return eventstest.Conn(t, on) }
