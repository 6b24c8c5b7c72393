package account

import (
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
