package account

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
)

func TestTokenIsReadableByPocketBaseClients(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	parts := strings.Split(s.login("alice").Text, ".")
	is.Equal(len(parts), 3)
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	is.NoErr(err)
	var got map[string]any
	is.NoErr(json.Unmarshal(payload, &got))
	secret := got["sid"].(string)
	raw, err := base64.RawURLEncoding.DecodeString(secret)
	is.NoErr(err)
	is.True(len(raw) >= 16) // 128 bits
	delete(got, "sid")
	is.Equal(got, map[string]any{
		"id": "alice", "type": "auth", "collectionId": "users", "collectionName": "users", "refreshable": true,
		"iat": float64(s.time.Unix()), "exp": float64(s.time.Add(tokenLife).Unix()),
	})
	keys, err := s.secrets.Keys(t.Context(), "session")
	is.NoErr(err)
	is.Equal(keys, []string{sessionKey("alice", secret)}) // its hash is all that is kept
	value, _, err := s.secrets.Get(t.Context(), keys[0])
	is.NoErr(err)
	expect.Lacks(t, string(value), secret)
}

func TestOnlyOurTokensAreTokens(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.add("alice", User)
	s.add("root", Admin)
	token := s.login("alice")
	var good claims
	_, _, err := jwt.NewParser().ParseUnverified(token.Text, &good)
	is.New(t).NoErr(err)
	sign := func(method jwt.SigningMethod, key any, change func(*claims)) string {
		c := good
		change(&c)
		text, err := jwt.NewWithClaims(method, c).SignedString(key)
		is.New(t).NoErr(err)
		return text
	}
	same := func(*claims) {}
	otherKey := make([]byte, 32)
	rand.Read(otherKey)
	parts := strings.Split(token.Text, ".")
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	at := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(s.time.Add(d)) }
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token.Text[len(token.Text)-1])
	for name, text := range map[string]string{
		"another spelling":       token.Text[:len(token.Text)-1] + alphabet[last^1:last^1+1], // the bits that no byte has
		"empty":                  "",
		"not a token":            "x",
		"null":                   "null",
		"dots":                   "..",
		"10 MB":                  strings.Repeat("x", 10<<20),
		"10 MB of dots":          strings.Repeat(".", 10<<20),
		"with a space":           token.Text + " ",
		"with padding":           token.Text + "=",
		"cut":                    token.Text[:len(token.Text)-1],
		"another key":            sign(jwt.SigningMethodHS256, otherKey, same),
		"no key":                 sign(jwt.SigningMethodHS256, []byte{}, same),
		"HS384":                  sign(jwt.SigningMethodHS384, s.key, same),
		"HS512":                  sign(jwt.SigningMethodHS512, s.key, same),
		"alg none":               sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, same),
		"alg None":               encode(`{"alg":"None","typ":"JWT"}`) + "." + parts[1] + ".",
		"alg none, signed":       encode(`{"alg":"none","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"no alg":                 encode(`{}`) + "." + parts[1] + "." + parts[2],
		"another payload":        parts[0] + "." + encode(strings.Replace(mustDecode(t, parts[1]), "alice", "root", 1)) + "." + parts[2],
		"expired":                sign(jwt.SigningMethodHS256, s.key, func(c *claims) { c.ExpiresAt = at(-time.Second) }),
		"expires now":            sign(jwt.SigningMethodHS256, s.key, func(c *claims) { c.ExpiresAt = jwt.NewNumericDate(s.time.Truncate(time.Second)) }),
		"without exp":            sign(jwt.SigningMethodHS256, s.key, func(c *claims) { c.ExpiresAt = nil }),
		"another type":           sign(jwt.SigningMethodHS256, s.key, func(c *claims) { c.Type = "file" }),
		"without a session":      sign(jwt.SigningMethodHS256, s.key, func(c *claims) { c.Secret = "" }),
		"of the public id":       sign(jwt.SigningMethodHS256, s.key, func(c *claims) { c.Secret = token.Identity.Session }),
		"of another account":     sign(jwt.SigningMethodHS256, s.key, func(c *claims) { c.Account = "root" }),
		"of a path in the store": sign(jwt.SigningMethodHS256, s.key, func(c *claims) { c.Account = "*" }),
	} {
		if _, err := s.Check(text); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	is := is.New(t)
	superuser := sign(jwt.SigningMethodHS256, s.key, func(c *claims) {
		c.CollectionName, c.CollectionID = Superusers, Superusers
	})
	id, err := s.Check(superuser)
	is.NoErr(err)
	is.Equal([]string{id.Role, id.Collection}, []string{User, Users}) // what a token says of itself counts for nothing
	is.True(s.valid(token))
}

func mustDecode(t *testing.T, s string) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	is.New(t).NoErr(err)
	return string(b)
}

func TestTokenExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	token := s.login("alice")
	s.time = token.Identity.Expires.Add(-1)
	is.True(s.valid(token))
	is.NoErr(s.sweep(t.Context()))
	is.True(!s.ended(token))
	s.time = token.Identity.Expires
	is.True(!s.valid(token))
	_, err := s.Refresh(t.Context(), token.Identity, phone)
	is.Equal(err, ErrToken)
	list, err := s.Sessions(t.Context(), "alice")
	is.NoErr(err)
	is.Equal(len(list), 0)
	is.NoErr(s.sweep(t.Context()))
	is.True(s.ended(token))
	keys, err := s.secrets.Keys(t.Context(), "session")
	is.NoErr(err)
	is.Equal(len(keys), 0)
}

func TestRefreshExtendsTheSession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	first := s.login("alice")
	s.time = s.time.Add(10 * 24 * time.Hour)
	tablet := events.Client{Address: "192.0.2.2", Device: "Tablet/1"}
	second, err := s.Refresh(t.Context(), first.Identity, tablet)
	is.NoErr(err)
	is.Equal(second.Identity.Session, first.Identity.Session)
	is.True(s.valid(first)) // as long as it says
	id, err := s.Check(second.Text)
	is.NoErr(err)
	is.True(id.Expires.Equal(s.time.Add(tokenLife).Truncate(time.Second)))
	is.Equal(of[events.SessionRefreshed](s), []events.SessionRefreshed{{Session: id.Session, Expires: id.Expires.UTC(),
		Client: tablet}})
	list, err := s.Sessions(t.Context(), "alice")
	is.NoErr(err)
	is.Equal(len(list), 1)
	is.Equal(list[0].Client, tablet)
	is.True(list[0].Opened.Before(list[0].Refreshed))
	s.time = first.Identity.Expires
	is.True(!s.valid(first))
	is.True(s.valid(second))
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Command: root, Account: "alice"}))
	is.True(!s.valid(second))
	_, err = s.Refresh(t.Context(), id, phone)
	is.Equal(err, ErrToken) // and it does not come back
	is.True(!s.valid(second))
}

func TestTokensHoldAcrossAStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	remaining, revoked := s.login("alice"), s.login("alice")
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Command: root, Account: "alice", Session: revoked.Identity.Session}))
	after := reopen(t, s.server)
	is.True(after.valid(remaining) && !after.ended(remaining))
	is.True(!after.valid(revoked) && after.ended(revoked))
	after.login("alice")
	is.NoErr(s.secrets.Delete(t.Context(), tokenKey))
	is.True(!reopen(t, s.server).valid(remaining)) // another key, other tokens
}

// The first request after a login reaches a node that has not heard of the login yet.
func TestARequestWaitsForALoginAtAnotherNode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	other := reopen(t, s.server)
	s.add("alice", User) // the other does not know the account either
	revoked := s.login("alice")
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Command: root, Account: "alice", Session: revoked.Identity.Session}))
	_, err := other.Await(t.Context(), revoked.Text)
	is.Equal(err, ErrToken)

	token := s.login("alice")
	is.True(!other.valid(token))
	found := make(chan error, 1)
	go func() {
		_, err := other.Await(t.Context(), token.Text)
		found <- err
	}()
	other.run()
	is.NoErr(<-found)
}

func TestAnotherProcessHearsOfIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	other := reopen(t, s.server)
	s.run()
	other.run()
	s.add("root", Admin)
	s.add("alice", User)
	there := func(token Token) func() bool { return func() bool { return other.valid(token) } }
	hasEnded := func(token Token) func() bool { return func() bool { return !other.valid(token) && other.ended(token) } }
	one, two := s.login("alice"), s.login("alice")
	expect.Eventually(t, "the other process does not know the sessions", func() bool {
		return other.valid(one) && other.valid(two)
	})
	is.True(!other.ended(one))
	refreshed, err := s.Refresh(t.Context(), one.Identity, phone)
	is.NoErr(err)
	expect.Eventually(t, "nor the new token", there(refreshed))
	is.NoErr(s.Revoke(t.Context(), RevokeSession{Command: root, Account: "alice", Session: one.Identity.Session}))
	expect.Eventually(t, "a revoked session goes on", hasEnded(one))
	is.True(other.valid(two))
	_, err = s.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Disabled: ptr(true)})
	is.NoErr(err)
	expect.Eventually(t, "a session of a disabled account goes on", hasEnded(two))

	// And back: the other one enables the account, and it logs in there.
	_, err = other.UpdateAccount(t.Context(), UpdateAccount{Command: root, Account: "alice", Disabled: ptr(false)})
	is.NoErr(err)
	three := other.login("alice")
	expect.Eventually(t, "a session opened elsewhere is not known", func() bool { return s.valid(three) })
	is.True(!s.ended(three))
	_, err = other.DeleteAccount(t.Context(), DeleteAccount{Command: root, Account: "alice"})
	is.NoErr(err)
	expect.Eventually(t, "a session of a deleted account goes on", func() bool {
		return !s.valid(three) && s.ended(three)
	})
	expect.Eventually(t, "what is over is not forgotten", func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return len(s.sessions) == 0 && len(s.public) == 0
	})
}

// A session is heard of by another way than its account, and may be there first.
func TestSessionWaitsForItsAccount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	other := reopen(t, s.server)
	s.add("alice", User)
	token := s.login("alice")
	is.NoErr(other.loadSessions(t.Context()))
	is.True(!other.valid(token) && !other.ended(token))
	is.NoErr(other.refresh(t.Context()))
	is.True(other.valid(token))
}

func TestOldestSessionMakesRoom(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	owner, err := s.find(t.Context(), "alice")
	is.NoErr(err)
	var tokens []Token
	for range maxSessions {
		s.time = s.time.Add(time.Second)
		token, err := s.openSession(t.Context(), owner, Users, "password", phone)
		is.NoErr(err)
		tokens = append(tokens, token)
	}
	s.time = s.time.Add(time.Second)
	_, err = s.Refresh(t.Context(), tokens[0].Identity, phone)
	is.NoErr(err)
	is.True(s.valid(s.login("alice")))
	is.True(s.valid(tokens[0]))
	is.True(!s.valid(tokens[1]))
	is.Equal(of[events.SessionClosed](s), []events.SessionClosed{{Session: tokens[1].Identity.Session,
		Reason: "replaced"}})
}

// A login that cannot be recorded is none.
func TestSessionWithoutItsEventIsTakenBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.add("alice", User)
	good := s.log
	nc := connect(t, s.server)
	broken, err := log.Attach(nc)
	is.NoErr(err)
	nc.Close()
	owner, err := s.find(t.Context(), "alice")
	is.NoErr(err)
	s.log = broken
	_, err = s.openSession(t.Context(), owner, Users, "password", phone)
	is.True(err != nil)
	is.True(!errors.As(err, new(handlers.Refused)))
	s.log = good
	list, err := s.Sessions(t.Context(), "alice")
	is.NoErr(err)
	is.Equal(len(list), 0)
}

func BenchmarkCheck(b *testing.B) {
	s := start(b)
	s.add("alice", User)
	for range 10 {
		s.login("alice")
	}
	token := s.login("alice")
	for b.Loop() {
		if _, err := s.Check(token.Text); err != nil {
			b.Fatal(err)
		}
	}
}
