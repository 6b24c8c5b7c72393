package account

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
)

func (s *system) setup() Setup {
	s.t.Helper()
	is := is.New(s.t)
	setup, needed, err := s.Setup(s.t.Context())
	is.NoErr(err)
	is.True(needed)
	return setup
}

func (s *system) complete(token string) (Token, error) {
	return s.CompleteSetup(s.t.Context(), CompleteSetup{Token: token, Email: "root@example.org", Name: "Root",
		Password: password, Client: phone})
}

func TestSetupMakesTheFirstAdmin(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	setup := s.setup()
	is.Equal(url.PathEscape(setup.Token), setup.Token) // fit for a link
	is.True(len(setup.Token)*6 >= 128)
	value, _, err := s.secrets.Get(t.Context(), setupKey)
	is.NoErr(err)
	is.True(!bytes.Contains(value, []byte(setup.Token)))

	_, err = s.CompleteSetup(t.Context(), CompleteSetup{Token: setup.Token, Email: "root", Password: password})
	code, text := refusal(t, err)
	is.Equal(code, handlers.Invalid)
	is.True(strings.HasPrefix(text, "email: ")) // and the link still holds
	token, err := s.complete(setup.Token)
	is.NoErr(err)
	id, err := s.Check(token.Text)
	is.NoErr(err)
	is.Equal([]string{id.Email, id.Name, id.Role}, []string{"root@example.org", "Root", Admin})
	is.Equal(of[events.SessionOpened](s)[0].Method, "setup")
	keys, err := s.secrets.Keys(t.Context(), setupKey)
	is.NoErr(err)
	is.Equal(len(keys), 0)

	_, needed, err := s.Setup(t.Context())
	is.NoErr(err)
	is.True(!needed)
	_, err = s.complete(setup.Token)
	code, text = refusal(t, err)
	is.Equal(code, handlers.NotFound)
	is.True(strings.HasPrefix(text, "token: "))
	_, err = s.tryLogin("root", password)
	is.NoErr(err)
}

func TestOnlyTheNewestSetupLinkHoldsForHalfAnHour(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	_, err := s.complete("") // before there was any
	code, _ := refusal(t, err)
	is.Equal(code, handlers.NotFound)
	first := s.setup()
	second := reopen(t, s.server).setup()
	is.True(second.Expires.Sub(s.time) >= 30*time.Minute)
	for _, token := range []string{first.Token, "", "x", second.Token + "x", strings.Repeat("x", 1<<20)} {
		_, err := s.complete(token)
		code, _ := refusal(t, err)
		is.Equal(code, handlers.NotFound)
	}
	s.time = second.Expires
	_, err = s.complete(second.Token)
	code, _ = refusal(t, err)
	is.Equal(code, handlers.NotFound)
	failed := of[events.LoginFailed](s)
	is.Equal(len(failed), 7)
	is.Equal(failed[6], events.LoginFailed{Reason: "setup", Client: phone})
	s.time = second.Expires.Add(-1)
	_, err = s.complete(second.Token)
	is.NoErr(err)
}

func TestSetupIsRacedByTwoBrowsersAndOneWins(t *testing.T) {
	t.Parallel()
	for range 5 {
		is := is.New(t)
		s := start(t)
		setup := s.setup()
		processes := []*system{s, s, reopen(t, s.server), reopen(t, s.server)}
		errs := make([]error, len(processes))
		var all sync.WaitGroup
		for i, p := range processes {
			all.Go(func() {
				email := string(rune('a'+i)) + "@example.org"
				_, errs[i] = p.CompleteSetup(t.Context(), CompleteSetup{Token: setup.Token, Email: email, Password: password,
					Client: phone})
			})
		}
		all.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			code, _ := refusal(t, err)
			is.True(code == handlers.Conflict || code == handlers.NotFound)
		}
		is.Equal(won, 1)
		is.Equal(len(of[events.AccountCreated](s)), 1)
		is.Equal(len(of[events.SessionOpened](s)), 1)
		keys, err := s.secrets.Keys(t.Context(), "password")
		is.NoErr(err)
		is.Equal(len(keys), 1) // nothing is left of the others
	}
}

func TestSetupIsNeededAgainWithoutAnAdmin(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	s.setup() // a user is no admin
	s.add("root", Admin)
	_, needed, err := s.Setup(t.Context())
	is.NoErr(err)
	is.True(!needed)
}

func TestAdminOfTheEnvironment(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	ensure := func(email, password string) string {
		t.Helper()
		note, err := s.EnsureAdmin(t.Context(), email, password)
		is.NoErr(err)
		return note
	}
	_, err := s.EnsureAdmin(t.Context(), "root@example.org", "password")
	code, _ := refusal(t, err)
	is.Equal(code, handlers.Invalid) // no weak one here either
	is.Equal(ensure("root@example.org", password), "")
	is.Equal(ensure("Root@Example.org", password), "") // at the next start
	expect.Contains(t, ensure("root@example.org", "battery staple"), "has another password, and keeps it")
	s.login("root")
	s.add("alice", User)
	expect.Contains(t, ensure("alice@example.org", password), "has the role user")
	s.add("bob", Admin)
	_, err = s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "bob", Disabled: ptr(true)})
	is.NoErr(err)
	expect.Contains(t, ensure("bob@example.org", password), "is disabled")
	is.Equal(len(of[events.AccountCreated](s)), 3)
}

// The command that gives an account a new password needs a system that runs.
func TestALostPasswordNamesTheAccountAndTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("root", Admin)
	const help = "give it a new password with: pocketcoder user passwd root@example.org"
	for _, hash := range []string{"", "$argon2id$damaged"} {
		is.NoErr(s.secrets.Delete(t.Context(), passwordKey("root")))
		if hash != "" {
			is.NoErr(s.secrets.Put(t.Context(), passwordKey("root"), []byte(hash)))
			_, err := s.tryLogin("root", password)
			is.True(err != nil)
			expect.Contains(t, err.Error(), "the account root@example.org")
			expect.Contains(t, err.Error(), help)
		}
		note, err := s.EnsureAdmin(t.Context(), "root@example.org", password)
		is.NoErr(err)
		is.Equal(note, "the password of the account root@example.org is lost or damaged; "+help)
	}
	_, err := s.SetPassword(t.Context(), SetPassword{Command: root, Account: "root", Password: password})
	is.NoErr(err)
	s.login("root")
}

// Everything that is secret is followed through everything that can happen to it.
func TestNoSecretReachesTheLog(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	s := reopen(t, eventstest.Server(t, dir))
	const first, second, wrong, name = "canary-first", "canary-second", "canary-wrong", "canary-typed-as-the-name"
	setup := s.setup()
	secret := []string{first, second, wrong, name, setup.Token}
	_, err := s.complete(wrong)
	is.True(err != nil)
	token, err := s.CompleteSetup(t.Context(), CompleteSetup{Token: setup.Token, Email: "root@example.org",
		Password: first, Client: phone})
	is.NoErr(err)
	id := token.Identity
	refreshed, err := s.Refresh(t.Context(), id, phone)
	is.NoErr(err)
	for _, l := range []Login{{Identity: "root@example.org", Password: wrong}, {Identity: name, Password: wrong},
		{Identity: wrong, Password: first}} {
		_, err := s.Login(t.Context(), l)
		is.Equal(err, ErrCredentials)
	}
	_, _, err = s.CreateAccount(t.Context(), CreateAccount{Command: root, Account: "alice", Email: "alice@example.org",
		Role: User, Password: first})
	is.NoErr(err)
	_, err = s.SetPassword(t.Context(), SetPassword{Command: root, Account: "alice", Password: second, Old: ptr(wrong)})
	is.True(err != nil)
	_, err = s.SetPassword(t.Context(), SetPassword{Command: root, Account: "alice", Password: second, Old: ptr(first)})
	is.NoErr(err)
	_, err = s.EnsureAdmin(t.Context(), "root@example.org", second)
	is.NoErr(err)
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Command: root, Account: id.Account}))
	_, err = s.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: "alice"})
	is.NoErr(err)
	secret = append(secret, token.Text, refreshed.Text, id.secret, string(s.key), "argon2id")

	all, _ := s.history()
	is.True(len(all) > 10)
	for _, e := range all {
		whole, err := e.MarshalJSON()
		is.NoErr(err)
		for _, secret := range secret {
			is.True(!bytes.Contains(whole, []byte(secret))) // secret
		}
	}
	// Of passwords and tokens not even the files of SECRETS hold more than hashes.
	is.NoErr(filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		for _, secret := range []string{first, second, wrong, name, setup.Token, token.Text, refreshed.Text, id.secret} {
			is.True(!bytes.Contains(body, []byte(secret))) // secret
		}
		return err
	}))
}
