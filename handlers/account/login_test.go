package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

func TestLoginGivesATokenOfTheAccount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", Agent)
	token, err := s.Login(t.Context(), Login{Identity: " ALICE@example.org ", Password: password, Client: phone})
	is.NoErr(err)
	id, err := s.Check(token.Text)
	is.NoErr(err)
	is.Equal(id, token.Identity)
	is.Equal([]string{id.Account, id.Email, id.Name, id.Role, id.Collection},
		[]string{"alice", "alice@example.org", "alice", Agent, Users})
	is.True(id.Expires.Equal(s.time.Add(tokenLife).Truncate(time.Second)))
	opened := of[events.SessionOpened](s)
	is.Equal(opened, []events.SessionOpened{{Session: id.Session, Method: "password", Expires: id.Expires.UTC(),
		Client: phone}})
	all, _ := s.history()
	last := all[len(all)-1]
	is.Equal(last.Seq, token.Seq)
	is.Equal(last.RawSubject, events.UserSubject("alice", "session.opened"))
	is.Equal(last.Actor, events.UserActor("alice"))
	is.True(s.login("alice").Identity.Session != id.Session) // each login is a session of its own
}

func TestRefusedLoginDoesNotSayWhy(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.add("root", Admin)
	s.add("alice", User)
	s.add("gone", User)
	s.add("off", User)
	_, err := s.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: "gone"})
	is.New(t).NoErr(err)
	_, err = s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "off", Disabled: ptr(true)})
	is.New(t).NoErr(err)
	for _, c := range []struct {
		login           Login
		subject, reason string
	}{
		{Login{Identity: "alice@example.org", Password: "wrong horse"}, "evt.user.alice.login.failed", "password"},
		{Login{Identity: "alice@example.org"}, "evt.user.alice.login.failed", "password"},
		{Login{Identity: "alice@example.org", Password: strings.Repeat("x", 1<<20)}, "evt.user.alice.login.failed", "password"},
		{Login{Identity: "alice@example.org", Password: password, Collection: Superusers}, "evt.user.alice.login.failed", "role"},
		{Login{Identity: "off@example.org", Password: password}, "evt.user.off.login.failed", "disabled"},
		{Login{Identity: "gone@example.org", Password: password}, "evt.audit.login.failed", "unknown"},
		{Login{Identity: "eve@example.org", Password: password}, "evt.audit.login.failed", "unknown"},
		{Login{Identity: "", Password: ""}, "evt.audit.login.failed", "unknown"},
		{Login{Identity: strings.Repeat("x", 1<<20), Password: password}, "evt.audit.login.failed", "unknown"},
		{Login{Identity: "alice", Password: password}, "evt.audit.login.failed", "unknown"}, // the id is no name
	} {
		is := is.New(t)
		c.login.Client = phone
		_, err := s.Login(t.Context(), c.login)
		is.Equal(err, ErrCredentials) // c.reason
		all, data := s.history()
		is.Equal(all[len(all)-1].RawSubject, c.subject)
		is.Equal(all[len(all)-1].Actor, events.ActorNobody)
		is.Equal(data[len(data)-1], events.LoginFailed{Reason: c.reason, Client: phone})
	}
	is := is.New(t)
	_, err = s.Login(t.Context(), Login{Identity: "alice@example.org", Password: password, Collection: "chats"})
	code, _ := refusal(t, err)
	is.Equal(code, handlers.NotFound)
	admin, err := s.Login(t.Context(), Login{Identity: "root@example.org", Password: password, Collection: Superusers})
	is.NoErr(err)
	is.Equal(admin.Identity.Collection, Superusers)
	is.True(s.valid(admin))
}

// An unknown name costs a hash like any other.
func TestUnknownNameIsHashedToo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	for range maxHashing { // all places for hashing are taken
		s.hashing <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := s.Login(ctx, Login{Identity: "eve@example.org", Password: password})
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("it was answered without a hash: %v", err)
	case <-time.After(50 * time.Millisecond): // it waits for a place
	}
	cancel()
	is.True(errors.Is(<-answer, context.Canceled)) // and not for ever
	for range maxHashing {
		<-s.hashing
	}
	_, err := s.tryLogin("eve", password)
	is.Equal(err, ErrCredentials)
}

// guess fails to log in n times and gives the last answer.
func (s *system) guess(id string, n int) (err error) {
	for range n {
		_, err = s.tryLogin(id, "wrong horse")
	}
	return err
}

func TestGuessingGetsSlower(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"alice", "unknown"} { // the answer does not reveal which accounts exist
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := start(t)
			s.add("alice", User)
			is.Equal(s.guess(id, 5), ErrCredentials)
			for _, wait := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900} {
				is.Equal(s.guess(id, 3), ErrBackoff{time.Duration(wait) * time.Second}) // those in between make it no longer
				s.time = s.time.Add(time.Duration(wait)*time.Second - 1)
				is.Equal(s.guess(id, 1), ErrBackoff{1})
				s.time = s.time.Add(1)
				is.Equal(s.guess(id, 1), ErrCredentials)
			}
			s.time = s.time.Add(longestWait + forgetAfter + 1)
			is.Equal(s.guess(id, 5), ErrCredentials) // a day later it begins anew
			is.Equal(s.guess(id, 1), ErrBackoff{time.Second})
		})
	}
}

func TestFailuresFarApartCostNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	for range 12 {
		is.Equal(s.guess("alice", 1), ErrCredentials)
		s.time = s.time.Add(failureWindow/4 + time.Second)
	}
}

func TestRightPasswordIsNotLookedAtWhileWaiting(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	s.add("bob", User)
	is.Equal(s.guess("alice", 5), ErrCredentials)
	_, err := s.tryLogin("alice", password)
	is.Equal(err, ErrBackoff{time.Second})
	failed := of[events.LoginFailed](s)
	is.Equal(failed[len(failed)-1].Reason, "backoff")
	s.login("bob") // one account's trouble is not another's

	// Neither another process nor a start forgets.
	other := reopen(t, s.server)
	other.time = s.time
	_, err = other.tryLogin("alice", password)
	is.Equal(err, ErrBackoff{time.Second})

	s.time = s.time.Add(time.Second)
	s.login("alice")
	is.Equal(s.guess("alice", 5), ErrCredentials) // success begins the count anew
	is.Equal(s.guess("alice", 1), ErrBackoff{time.Second})
	_, err = s.SetPassword(t.Context(), SetPassword{Command: root, Account: "alice", Password: password})
	is.NoErr(err)
	s.login("alice") // and so does a new password
}

func TestGuessesAtOnceAreCountedOneByOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	errs := make([]error, 20)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = s.tryLogin("alice", fmt.Sprint("wrong horse ", i)) })
	}
	all.Wait()
	tried := 0
	for _, err := range errs {
		if errors.Is(err, ErrCredentials) {
			tried++
		}
	}
	is.Equal(tried, freeFailures)
}

func TestNamesNobodyHasTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	for i := range 3 * maxUnknownNames {
		s.attemptsOn(nil, fmt.Sprint(i))
	}
	is.True(len(s.unknownNames) <= maxUnknownNames+1)
}

func TestLongClientIsCutShort(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	_, err := s.Login(t.Context(), Login{Identity: "alice@example.org", Password: password,
		Client: events.Client{Device: strings.Repeat("é", 1<<19) + "\xff"}})
	is.NoErr(err)
	is.Equal(of[events.SessionOpened](s)[0].Device, strings.Repeat("é", 127))
}

func TestPasswordIsChanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	other, current := s.login("alice"), s.login("alice")
	set := func(c SetPassword) error {
		c.Command, c.Account, c.Client = handlers.Command{Actor: "user:alice"}, "alice", phone
		_, err := s.SetPassword(t.Context(), c)
		return err
	}
	code, text := refusal(t, set(SetPassword{Password: "battery staple", Old: ptr("wrong horse")}))
	is.Equal(code, handlers.Invalid)
	is.Equal(text, "old: the password is wrong")
	code, text = refusal(t, set(SetPassword{Password: "alice@example.org", Old: ptr(password)}))
	is.Equal(code, handlers.Invalid)
	is.Equal(text, "password: it is the email")
	is.True(s.valid(other))

	is.NoErr(set(SetPassword{Password: "battery staple", Old: ptr(password), Keep: current.Identity.Session}))
	is.True(!s.valid(other))
	is.True(s.ended(other))
	is.True(s.valid(current))
	_, err := s.tryLogin("alice", password)
	is.Equal(err, ErrCredentials)
	_, err = s.tryLogin("alice", "battery staple")
	is.NoErr(err)
	is.Equal(len(of[events.PasswordChanged](s)), 1)
	is.Equal(of[events.SessionClosed](s), []events.SessionClosed{{Session: other.Identity.Session, Reason: "password"}})

	is.NoErr(set(SetPassword{Password: password})) // an administrator need not know the old one
	is.True(!s.valid(current))

	for range freeFailures { // the old password is guessed as slowly as at a login
		code, _ := refusal(t, set(SetPassword{Password: "battery staple", Old: ptr("wrong horse")}))
		is.Equal(code, handlers.Invalid)
	}
	err = set(SetPassword{Password: "battery staple", Old: ptr(password)})
	is.Equal(err, ErrBackoff{time.Second})
	_, err = s.tryLogin("alice", password)
	is.Equal(err, ErrBackoff{time.Second})
}

// The password is changed by another process while a login with the old one is under way.
func TestLoginThatOutlivedItsPasswordFails(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	other := reopen(t, s.server)
	s.add("alice", User)
	looked := 0
	s.now = func() time.Time {
		if looked++; looked == 2 { // once before the password is compared, then when the session is opened
			_, err := other.SetPassword(t.Context(), SetPassword{Command: root, Account: "alice", Password: "battery staple"})
			is.NoErr(err)
		}
		return s.time
	}
	_, err := s.tryLogin("alice", password)
	is.Equal(err, ErrCredentials)
	opened := of[events.SessionOpened](s)
	is.Equal(len(opened), 1) // the password was right when it was looked at
	is.Equal(of[events.SessionClosed](s), []events.SessionClosed{{Session: opened[0].Session, Reason: "password"}})
	list, err := s.Sessions(t.Context(), "alice")
	is.NoErr(err)
	is.Equal(len(list), 0)
}
