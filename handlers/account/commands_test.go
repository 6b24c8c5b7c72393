package account

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
)

func TestAccountIsWhatWasCreated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	create := CreateAccount{Command: root, Email: " Alice@Example.org ", Name: " Alice ", Role: Agent, Password: password}
	id, seq, err := s.CreateAccount(t.Context(), create)
	is.NoErr(err)
	list, err := s.List(t.Context())
	is.NoErr(err)
	is.Equal(len(list), 1)
	is.True(list[0].Created.Equal(s.time))
	list[0].Created = s.time
	is.Equal(list[0], Account{ID: id, Email: "Alice@Example.org", Name: "Alice", Role: Agent, Created: s.time})

	create.Account = id
	repeated, seq2, err := s.CreateAccount(t.Context(), create) // the answer was lost
	is.NoErr(err)
	is.Equal([]any{repeated, seq2}, []any{id, seq})
	all, data := s.history()
	is.Equal(data, []events.Data{events.AccountCreated{Email: "Alice@Example.org", Name: "Alice", Role: Agent}})
	is.Equal(all[0].Actor, root.Actor)
	is.Equal(all[0].RawSubject, events.UserSubject(id, "account.created"))
}

func TestAnAccountWithASecretInItsNameIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", Admin)
	s.log.Conceal(secret.System, "token", "secret-of-this-test")
	_, _, err := s.CreateAccount(t.Context(), CreateAccount{Command: root, Email: "bob@example.org",
		Name: "Bob secret-of-this-test", Role: Agent, Password: password})
	is.Equal(handlers.CodeOf(err), handlers.Invalid)
	expect.Contains(t, err.Error(), "name contains a secret")
	name := "secret-of-this-test"
	_, err = s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Name: &name})
	is.Equal(handlers.CodeOf(err), handlers.Invalid)
}

func TestBadAccountIsRefusedWithTheField(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.add("alice", Admin)
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		change func(*CreateAccount)
		code   handlers.Code
		want   string
	}{
		{func(c *CreateAccount) { c.Account = "*" }, handlers.Invalid, `account: parse id "*"`},
		{func(c *CreateAccount) { c.Account = "a.b" }, handlers.Invalid, "account: parse id"},
		{func(c *CreateAccount) { c.Account = "alice" }, handlers.Conflict, "account: alice exists already"},
		{func(c *CreateAccount) { c.Email = "" }, handlers.Invalid, "email: "},
		{func(c *CreateAccount) { c.Email = "bob" }, handlers.Invalid, `email: "bob" is not an address`},
		{func(c *CreateAccount) { c.Email = "Bob <bob@example.org>" }, handlers.Invalid, "email: "},
		{func(c *CreateAccount) { c.Email = "<bob@example.org>" }, handlers.Invalid, "email: "},
		{func(c *CreateAccount) { c.Email = "bob@example.org, eve@example.org" }, handlers.Invalid, "email: "},
		{func(c *CreateAccount) { c.Email = "bob@example.org\nBcc: eve@example.org" }, handlers.Invalid, "email: "},
		{func(c *CreateAccount) { c.Email = "b\xffb@example.org" }, handlers.Invalid, "email: "},
		{func(c *CreateAccount) { c.Email = long + "@example.org" }, handlers.Invalid, "email: want at most 255 bytes, got 312"},
		{func(c *CreateAccount) { c.Email = " ALICE@example.ORG" }, handlers.Conflict, "email: ALICE@example.ORG belongs to another"},
		{func(c *CreateAccount) { c.Name = long }, handlers.Invalid, "name: want at most 255"},
		{func(c *CreateAccount) { c.Name = "\xff" }, handlers.Invalid, "name: "},
		{func(c *CreateAccount) { c.Role = "" }, handlers.Invalid, "role: want admin, agent or user"},
		{func(c *CreateAccount) { c.Role = "root" }, handlers.Invalid, "role: "},
		{func(c *CreateAccount) { c.Password = "" }, handlers.Invalid, "password: want 8 to 1024 bytes, got 0"},
		{func(c *CreateAccount) { c.Password = "1234567" }, handlers.Invalid, "password: want 8"},
		{func(c *CreateAccount) { c.Password = strings.Repeat("x", 1025) }, handlers.Invalid, "password: want 8"},
		{func(c *CreateAccount) { c.Password = "Password1" }, handlers.Invalid, "password: it is one of the most common"},
		{func(c *CreateAccount) { c.Password = "BOB@example.org" }, handlers.Invalid, "password: it is the email"},
		{func(c *CreateAccount) { c.Password = "\xff1234567890" }, handlers.Invalid, "password: it is not UTF-8"},
	} {
		is := is.New(t)
		create := CreateAccount{Command: root, Account: "bob", Email: "bob@example.org", Role: User, Password: password}
		c.change(&create)
		_, _, err := s.CreateAccount(t.Context(), create)
		code, text := refusal(t, err)
		is.Equal(code, c.code)                   // c.says
		is.True(strings.HasPrefix(text, c.want)) // c.says
		if !strings.HasPrefix(c.want, "password: it is the email") {
			is.True(!strings.Contains(text, create.Password) || create.Password == "") // a refusal does not repeat a password
		}
	}
	is := is.New(t)
	is.Equal(len(of[events.AccountCreated](s)), 1)
	keys, err := s.secrets.Keys(t.Context(), "password")
	is.NoErr(err)
	is.Equal(keys, []string{passwordKey("alice")}) // and nothing is left behind
}

func TestLongestPasswordAndOddCharactersAreFine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	for i, password := range []string{strings.Repeat("x", 1024), "        ", "pässwörd€😀", "a\x00bcdefgh"} {
		id := fmt.Sprintf("user%d", i)
		_, _, err := s.CreateAccount(t.Context(), CreateAccount{Command: root, Account: id, Email: id + "@example.org",
			Role: User, Password: password})
		is.NoErr(err)
		_, err = s.tryLogin(id, password)
		is.NoErr(err)
		_, err = s.tryLogin(id, password[:len(password)-1])
		is.True(errors.Is(err, ErrCredentials))
	}
}

func TestSameIDWithAnotherPasswordIsAnotherAccount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	_, _, err := s.CreateAccount(t.Context(), CreateAccount{Command: root, Account: "alice", Email: "alice@example.org",
		Name: "alice", Role: User, Password: "another one"})
	code, _ := refusal(t, err)
	is.Equal(code, handlers.Conflict)
	s.login("alice") // with the first one
}

// A crash between the password and the event leaves a password without an account.
func TestCreateThatWasCutShortIsDoneAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	_, err := s.createPassword(t.Context(), "alice", password)
	is.NoErr(err)
	s.add("alice", User)
	s.login("alice")
}

func TestUpdateChangesWhatItNames(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", Admin)
	s.add("bob", User)
	seq, err := s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "bob", Name: ptr(" Robert "),
		Email: ptr("BOB@example.org")})
	is.NoErr(err)
	repeated, err := s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "bob", Name: ptr("Robert"),
		Role: ptr(User), Disabled: ptr(false)})
	is.NoErr(err)
	is.Equal(repeated, seq) // it is so already
	is.Equal(len(of[events.AccountUpdated](s)), 1)
	bob, err := s.find(t.Context(), "bob")
	is.NoErr(err)
	is.Equal([]string{bob.Name, bob.Email, bob.Role}, []string{"Robert", "BOB@example.org", User})

	for _, c := range []struct {
		update UpdateAccount
		code   handlers.Code
		want   string
	}{
		{UpdateAccount{Account: "nobody"}, handlers.NotFound, "account: "},
		{UpdateAccount{Account: ">"}, handlers.Invalid, "account: "},
		{UpdateAccount{Account: "bob", Email: ptr("Alice@example.org")}, handlers.Conflict, "email: "},
		{UpdateAccount{Account: "bob", Email: ptr("x")}, handlers.Invalid, "email: "},
		{UpdateAccount{Account: "bob", Role: ptr("owner")}, handlers.Invalid, "role: "},
		{UpdateAccount{Account: "bob", Name: ptr("\xff")}, handlers.Invalid, "name: "},
	} {
		_, err := s.UpdateAccount(t.Context(), c.update)
		code, text := refusal(t, err)
		is.Equal(code, c.code)                   // c.says
		is.True(strings.HasPrefix(text, c.want)) // c.says
	}
}

// The decision is made again when another process was first, and sees what it did.
func TestEmailBelongsToTheFirstOfTwoProcesses(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	other := reopen(t, s.server)
	rounds := 0
	_, err := s.decide(t.Context(), root, "alice", func() ([]events.Data, uint64, error) {
		if rounds++; rounds == 1 {
			_, _, err := other.CreateAccount(t.Context(), CreateAccount{Command: root, Account: "eve",
				Email: "ALICE@example.org", Role: User, Password: password})
			is.NoErr(err)
		}
		return s.decideCreate(CreateAccount{Account: "alice", Email: "alice@example.org", Role: User})
	})
	code, text := refusal(t, err)
	is.Equal(code, handlers.Conflict)
	is.Equal(text, "email: alice@example.org belongs to another account")
	is.Equal(rounds, 2)
}

func TestDeletedAccountIsGoneAndItsEmailIsFree(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	token := s.login("alice")
	seq, err := s.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: "alice"})
	is.NoErr(err)
	repeated, err := s.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: "alice"})
	is.NoErr(err)
	is.Equal(repeated, seq)
	is.True(!s.valid(token))
	is.True(s.ended(token))
	_, err = s.tryLogin("alice", password)
	is.True(errors.Is(err, ErrCredentials))
	keys, err := s.secrets.Keys(t.Context(), "")
	is.NoErr(err)
	is.Equal(keys, []string{tokenKey})
	for _, err := range []error{
		func() error {
			_, err := s.UpdateAccount(t.Context(), UpdateAccount{Account: "alice", Disabled: ptr(false)})
			return err
		}(),
		func() error {
			_, err := s.SetPassword(t.Context(), SetPassword{Account: "alice", Password: "another one"})
			return err
		}(),
		func() error { _, err := s.Sessions(t.Context(), "alice"); return err }(),
	} {
		code, _ := refusal(t, err)
		is.Equal(code, handlers.NotFound)
	}
	_, _, err = s.CreateAccount(t.Context(), CreateAccount{Command: root, Account: "alice", Email: "alice@example.org",
		Name: "alice", Role: User, Password: password})
	code, _ := refusal(t, err)
	is.Equal(code, handlers.Conflict) // its id is not used again
	_, _, err = s.CreateAccount(t.Context(), CreateAccount{Command: root, Account: "alice2", Email: "alice@example.org",
		Role: User, Password: password})
	is.NoErr(err)
	is.True(!s.valid(token))

	list, err := reopen(t, s.server).List(t.Context()) // and so it is after a start
	is.NoErr(err)
	is.Equal(len(list), 1)
	is.Equal(list[0].ID, "alice2")
}

// A foreign message under our subjects changes nothing, and stops nothing.
func TestForeignMessageIsPassedOver(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	nc := connect(t, s.server)
	is.NoErr(nc.Publish("evt.user.alice.account.created", []byte(`{"email":"alice@example.org","role":"admin"}`)))
	is.NoErr(nc.Publish("evt.user.alice.account.nonsense", []byte(`?`)))
	is.NoErr(nc.Flush())
	expect.Eventually(t, "the messages are not stored", func() bool {
		last, err := s.log.Last(t.Context())
		return err == nil && last == 2
	})
	s.add("bob", User)
	list, err := s.List(t.Context())
	is.NoErr(err)
	is.Equal(len(list), 1)
}
