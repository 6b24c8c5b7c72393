package account

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"pocketcoder/events/secret"
)

// tokenLife is the lifetime of a token, and of a session that is not refreshed.
const tokenLife = 14 * 24 * time.Hour

// maxToken limits the length of a token, in bytes; ours have about 400.
const maxToken = 4096

// tokenKey is the key in SECRETS of the key that signs tokens. Deleting it ends all logins at the next start.
const tokenKey = "token.key"

// ErrToken means that a token is invalid or has expired.
var ErrToken = errors.New("the token is not valid")

// Token is a signed JWT in the form that PocketBase's clients accept.
type Token struct {
	Text     string
	Identity Identity
	Seq      uint64 // of the event of the login
}

// Identity is the account of a token, with its current state.
type Identity struct {
	Account    string
	Email      string
	Name       string
	Role       string
	Collection string    // Users or Superusers
	Session    string    // public id
	Opened     time.Time // of the session
	Expires    time.Time // of the token

	secret string // of the session
}

// claims are the contents of a token. Only the session's secret is checked; the others are for clients.
type claims struct {
	Account        string `json:"id"`
	Type           string `json:"type"`
	CollectionID   string `json:"collectionId"`
	CollectionName string `json:"collectionName"`
	Secret         string `json:"sid"`
	Refreshable    bool   `json:"refreshable"`
	jwt.RegisteredClaims
}

// Instance names this installation: it follows from the key that signs tokens. Two systems on one host have different
// names, so that a browser can have a login at both.
func (a *Accounts) Instance() string {
	sum := hmac.New(sha256.New, a.key)
	sum.Write([]byte("instance"))
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// authToken is the token type that PocketBase's clients expect.
const authToken = "auth"

// openTokens reads the key that signs tokens, or creates it.
func (a *Accounts) openTokens(ctx context.Context) error {
	key := make([]byte, 32)
	rand.Read(key)
	err := a.secrets.Create(ctx, tokenKey, key)
	if errors.Is(err, secret.ErrExists) {
		key, _, err = a.secrets.Get(ctx, tokenKey)
	}
	if err != nil {
		return err
	}
	if len(key) != 32 {
		return fmt.Errorf("secret %q has %d bytes, want 32", tokenKey, len(key))
	}
	a.key = key
	a.parser = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithStrictDecoding(), jwt.WithTimeFunc(func() time.Time { return a.now() }))
	return nil
}

func (a *Accounts) sign(s Session, secret string) (string, error) {
	c := claims{
		Account: s.Account, Type: authToken, CollectionID: s.Collection, CollectionName: s.Collection, Secret: secret,
		Refreshable:      true,
		RegisteredClaims: jwt.RegisteredClaims{IssuedAt: jwt.NewNumericDate(s.Refreshed), ExpiresAt: jwt.NewNumericDate(s.Expires)},
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(a.key)
}

// Check returns the identity of a token, or ErrToken. It is fast and does no I/O.
func (a *Accounts) Check(token string) (Identity, error) {
	c, err := a.claims(token)
	if err != nil {
		return Identity{}, err
	}
	id, _, err := a.check(c)
	return id, err
}

// sessionDelay is the maximal time until this process knows a session that another process has opened.
const sessionDelay = 2 * time.Second

// Await is Check for a request that may be the first after a login at another node: if SECRETS has the session, Await
// waits until the session and its account are known here too.
func (a *Accounts) Await(ctx context.Context, token string) (Identity, error) {
	c, err := a.claims(token)
	if err != nil {
		return Identity{}, err
	}
	id, known, err := a.check(c)
	if err == nil || known {
		return id, err
	}
	ctx, cancel := context.WithTimeout(ctx, sessionDelay)
	defer cancel()
	if _, found, err := a.secrets.Get(ctx, sessionKey(c.Account, c.Secret)); err != nil || !found {
		return Identity{}, ErrToken
	}
	tick := time.NewTicker(sessionDelay / 200)
	defer tick.Stop()
	for !known {
		select {
		case <-tick.C:
			id, known, err = a.check(c)
		case <-ctx.Done():
			return Identity{}, ErrToken
		}
	}
	return id, err
}

// claims returns the claims of a token that we signed, or ErrToken.
func (a *Accounts) claims(token string) (c claims, err error) {
	if len(token) > maxToken {
		return c, ErrToken
	}
	_, err = a.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return a.key, nil })
	if err != nil || c.Type != authToken {
		return c, ErrToken
	}
	return c, nil
}

// check looks up the session and the account of a token. known reports that both are known, valid or not.
func (a *Accounts) check(c claims) (id Identity, known bool, err error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	s, owner := a.sessions[sessionKey(c.Account, c.Secret)], a.accounts[c.Account]
	if s == nil || owner == nil {
		return Identity{}, false, ErrToken
	}
	if s.over || !owner.active() {
		return Identity{}, true, ErrToken
	}
	return identity(owner.Account, s.Session, c.Secret, c.ExpiresAt.UTC()), true, nil
}

func identity(owner Account, s Session, secret string, expires time.Time) Identity {
	return Identity{
		Account: owner.ID, Email: owner.Email, Name: owner.Name, Role: owner.Role,
		Collection: s.Collection, Session: s.ID, Opened: s.Opened, Expires: expires, secret: secret,
	}
}
