package account

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// The session is revoked between being read and being written.
func TestRefreshDoesNotBringBackARevokedSession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	token := s.login("alice")
	other := reopen(t, s.server)
	looked := 0
	s.now = func() time.Time {
		if looked++; looked == 1 {
			is.NoErr(other.Revoke(t.Context(), RevokeSession{Command: root, Account: "alice"}))
		}
		return s.time
	}
	_, err := s.Refresh(t.Context(), token.Identity, phone)
	is.Equal(err, ErrToken)
	list, err := s.Sessions(t.Context(), "alice")
	is.NoErr(err)
	is.Equal(len(list), 0)
}

func TestRevokedSessionIsOverAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	s.add("bob", User)
	one, two, bobs := s.login("alice"), s.login("alice"), s.login("bob")
	for _, c := range []RevokeSession{
		{Account: "alice", Session: bobs.Identity.Session}, {Account: "alice", Session: "nosuch"}, {Account: "nobody"},
	} {
		code, _ := refusal(t, s.Revoke(t.Context(), c))
		is.Equal(code, handlers.NotFound)
	}
	is.True(s.valid(one) && s.valid(two) && s.valid(bobs))
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Command: root, Account: "alice", Session: one.Identity.Session}))
	is.True(!s.valid(one) && s.ended(one))
	is.True(s.valid(two) && !s.ended(two))
	list, err := s.Sessions(t.Context(), "alice")
	is.NoErr(err)
	is.Equal(len(list), 1)
	is.Equal([]string{list[0].ID, list[0].Device, list[0].Address},
		[]string{two.Identity.Session, phone.Device, phone.Address})
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Command: root, Account: "alice"}))
	is.True(!s.valid(two) && s.ended(two))
	is.True(s.valid(bobs))
	closed := of[events.SessionClosed](s)
	is.Equal(closed, []events.SessionClosed{{Session: one.Identity.Session, Reason: "revoked"},
		{Session: two.Identity.Session, Reason: "revoked"}})
	is.True(s.ended(Token{})) // one that never was is over
}

func TestSessionsEndWithTheRightsOfTheirAccount(t *testing.T) {
	t.Parallel()
	for reason, change := range map[string]UpdateAccount{
		"disabled": {Command: root, Account: "alice", Disabled: ptr(true)},
		"role":     {Command: root, Account: "alice", Role: ptr(User)},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := start(t)
			s.add("root", Admin)
			s.add("alice", Admin)
			token := s.login("alice")
			_, err := s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Name: ptr("Alice B.")})
			is.NoErr(err)
			id, err := s.Check(token.Text)
			is.NoErr(err)
			is.Equal(id.Name, "Alice B.") // another name ends nothing
			_, err = s.UpdateAccount(t.Context(), change)
			is.NoErr(err)
			is.True(!s.valid(token) && s.ended(token))
			is.Equal(of[events.SessionClosed](s), []events.SessionClosed{{Session: token.Identity.Session, Reason: reason}})
			_, err = s.Refresh(t.Context(), token.Identity, phone)
			is.Equal(err, ErrToken)
			_, err = s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Role: ptr(Admin),
				Disabled: ptr(false)})
			is.NoErr(err)
			is.True(!s.valid(token)) // the way back gives a new session, not the old one
			is.True(s.valid(s.login("alice")))
		})
	}
}

// The process that disabled an account, or gave it another role, dies before it has removed the sessions.
func TestSessionsThatEndedDoNotComeBackAfterACrash(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]events.AccountUpdated{"disabled": {Disabled: ptr(true)},
		"role": {Role: ptr(Agent)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := start(t)
			s.add("root", Admin)
			s.add("alice", User)
			token := s.login("alice")
			_, err := s.decide(t.Context(), root, "alice", func() ([]events.Data, uint64, error) {
				return []events.Data{change}, 0, nil
			})
			is.NoErr(err)
			after := reopen(t, s.server)
			is.True(!after.valid(token) && after.ended(token))
			_, err = after.Refresh(t.Context(), token.Identity, phone)
			is.Equal(err, ErrToken)
			_, err = after.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Role: ptr(User),
				Disabled: ptr(false)})
			is.NoErr(err)
			is.True(!after.valid(token))
			reopened := reopen(t, s.server)
			is.True(!reopened.valid(token))
			list, err := reopened.Sessions(t.Context(), "alice")
			is.NoErr(err)
			is.Equal(len(list), 0)
			is.NoErr(reopened.sweep(t.Context()))
			keys, err := s.secrets.Keys(t.Context(), "session")
			is.NoErr(err)
			is.Equal(len(keys), 0)
		})
	}
}

// What SECRETS told before a session was revoked may arrive after it.
func TestRevokedSessionIsNotBroughtBackByOldNews(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	token := s.login("alice")
	key := sessionKey("alice", token.Identity.secret)
	old, _, err := s.secrets.Get(t.Context(), key)
	is.NoErr(err)
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Command: root, Account: "alice"}))
	s.applySession(key, old)
	is.True(!s.valid(token) && s.ended(token))
	s.applySession(key, nil)
	is.True(!s.valid(token) && s.ended(token))
	s.applySession("session.x.y", []byte("nonsense"))
	is.Equal(len(s.sessions), 0)
}
