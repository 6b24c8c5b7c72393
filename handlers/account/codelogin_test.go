package account

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

func TestAProgramLogsInWithACodeThatAPersonConfirms(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	terminal := events.Client{Address: "192.0.2.1", Device: "pocketcoder"}
	begin := func() CodeLogin {
		t.Helper()
		l, err := s.BeginCodeLogin(t.Context(), terminal)
		is.NoErr(err)
		return l
	}
	complete := func(code, secret string) (Token, bool, handlers.Code) {
		t.Helper()
		token, confirmed, err := s.CompleteCodeLogin(t.Context(), code, secret, terminal)
		return token, confirmed, handlers.CodeOf(err)
	}
	mine, other := begin(), begin()
	_, confirmed, code := complete(mine.Code, mine.Secret)
	is.Equal([]any{confirmed, code}, []any{false, handlers.Code("")}) // no person has confirmed it
	found, err := s.FindCodeLogin(t.Context(), "  "+mine.Code)
	is.NoErr(err)
	is.Equal(found.Client, terminal)
	is.NoErr(s.ConfirmCodeLogin(t.Context(), "alice", mine.Code))
	is.Equal(handlers.CodeOf(s.ConfirmCodeLogin(t.Context(), "alice", mine.Code)), handlers.Conflict)

	for _, wrong := range [][2]string{{mine.Code, other.Secret}, {"BCDF-GHJK", mine.Secret}, {"*", mine.Secret},
		{"", mine.Secret}, {mine.Code, ""}} { // another program's secret, and codes that are none
		_, confirmed, code := complete(wrong[0], wrong[1])
		is.Equal([]any{confirmed, code}, []any{false, handlers.NotFound})
	}
	_, confirmed, code = complete(other.Code, other.Secret)
	is.Equal([]any{confirmed, code}, []any{false, handlers.Code("")}) // the confirmation is of the other code alone
	token, confirmed, code := complete(mine.Code, mine.Secret)
	is.Equal([]any{confirmed, code}, []any{true, handlers.Code("")})
	is.True(s.valid(token))
	is.Equal([]string{token.Identity.Account, token.Identity.Collection}, []string{"alice", Users})
	sessions, err := s.Sessions(t.Context(), "alice")
	is.NoErr(err)
	is.Equal([]any{len(sessions), sessions[0].Client}, []any{1, terminal}) // listed like any other
	_, _, code = complete(mine.Code, mine.Secret)
	is.Equal(code, handlers.NotFound) // a code works once

	s.time = s.time.Add(CodeLife)
	is.Equal(handlers.CodeOf(s.ConfirmCodeLogin(t.Context(), "alice", other.Code)), handlers.NotFound) // it has expired
	_, _, code = complete(other.Code, other.Secret)
	is.Equal(code, handlers.NotFound)
	begin()
	keys, err := s.secrets.Keys(t.Context(), codePrefix)
	is.NoErr(err)
	is.Equal(len(keys), 1) // expired ones are gone
}

func TestACodeDoesNotOpenASessionOfADisabledAccount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	l, err := s.BeginCodeLogin(t.Context(), events.Client{})
	is.NoErr(err)
	is.Equal(l.Expires.Sub(s.time), 10*time.Minute)
	is.NoErr(s.ConfirmCodeLogin(t.Context(), "alice", l.Code))
	disabled := true
	_, err = s.UpdateAccount(t.Context(), UpdateAccount{Account: "alice", Disabled: &disabled})
	is.NoErr(err)
	_, confirmed, err := s.CompleteCodeLogin(t.Context(), l.Code, l.Secret, events.Client{})
	is.Equal([]any{confirmed, handlers.CodeOf(err)}, []any{false, handlers.NotFound})
}

func TestACodeDoesNotOutliveTheLoginsOfItsAccount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	l, err := s.BeginCodeLogin(t.Context(), events.Client{})
	is.NoErr(err)
	is.NoErr(s.ConfirmCodeLogin(t.Context(), "alice", l.Code))
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Account: "alice"})) // all of them
	_, confirmed, err := s.CompleteCodeLogin(t.Context(), l.Code, l.Secret, events.Client{})
	is.Equal([]any{confirmed, handlers.CodeOf(err)}, []any{false, handlers.NotFound})
}

func TestManyLoginsFromOneAddressKeepOutNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	begin := func(address string) (CodeLogin, handlers.Code) {
		t.Helper()
		l, err := s.BeginCodeLogin(t.Context(), events.Client{Address: address})
		return l, handlers.CodeOf(err)
	}
	mine, code := begin("198.51.100.1") // the oldest of all
	is.Equal(code, handlers.Code(""))
	s.time = s.time.Add(time.Second)
	for _, address := range []string{"192.0.2.1", "2001:db8::"} {
		for i := range maxCodesOfAddress {
			if i%2 == 1 && address == "2001:db8::" {
				address = "2001:db8::ffff" // an IPv6 line has many addresses
			}
			_, code := begin(address)
			is.Equal(code, handlers.Code(""))
		}
		_, code := begin(address)
		is.Equal(code, handlers.Unavailable)
	}
	for i := range maxCodes / maxCodesOfAddress {
		for range maxCodesOfAddress {
			_, code := begin(fmt.Sprintf("203.0.113.%d", i))
			is.Equal(code, handlers.Code(""))
		}
	}
	keys, err := s.secrets.Keys(t.Context(), codePrefix)
	is.NoErr(err)
	is.Equal(len(keys), maxCodes) // the oldest of the others are gone
	_, err = s.FindCodeLogin(t.Context(), mine.Code)
	is.NoErr(err)
}

func TestAConfirmedLoginIsNotReplaced(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	begin := func(address string) CodeLogin {
		t.Helper()
		l, err := s.BeginCodeLogin(t.Context(), events.Client{Address: address})
		is.NoErr(err)
		return l
	}
	mine := begin("198.51.100.1") // the oldest of the address with the most logins
	is.NoErr(s.ConfirmCodeLogin(t.Context(), "alice", mine.Code))
	s.time = s.time.Add(time.Second)
	for range maxCodesOfAddress - 1 {
		begin("198.51.100.1")
	}
	for i := range maxCodes - maxCodesOfAddress + 1 {
		begin(fmt.Sprintf("203.0.113.%d", i))
	}
	_, _, err := s.codeLogin(t.Context(), mine.Code)
	is.NoErr(err)
}

// The login of a program is one of its own: it does not end with that of the browser.
func TestAProgramStaysLoggedInWhenTheBrowserLogsOut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	browser := s.login("alice")
	l, err := s.BeginCodeLogin(t.Context(), events.Client{})
	is.NoErr(err)
	is.NoErr(s.ConfirmCodeLogin(t.Context(), "alice", l.Code))
	program, confirmed, err := s.CompleteCodeLogin(t.Context(), l.Code, l.Secret, events.Client{})
	is.NoErr(err)
	is.True(confirmed)
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Account: "alice", Session: browser.Identity.Session}))
	is.Equal([]bool{s.valid(browser), s.valid(program)}, []bool{false, true})
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Account: "alice"})) // all of them
	is.True(!s.valid(program))
}

func TestNoAccountHasTheIDOfTheOperator(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, _, err := s.CreateAccount(t.Context(), CreateAccount{Command: root, Account: OperatorID,
		Email: "o@example.org", Role: User, Password: password})
	is.New(t).Equal(handlers.CodeOf(err), handlers.Invalid)
}
