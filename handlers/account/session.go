package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// Session is a valid login session, as SECRETS stores it.
type Session struct {
	ID            string    `json:"id"` // public; it gives no access
	Account       string    `json:"account"`
	Collection    string    `json:"collection"`
	Since         uint64    `json:"since"` // sequence of the newest event about the account when the session was opened
	Opened        time.Time `json:"opened"`
	Refreshed     time.Time `json:"refreshed"`
	Expires       time.Time `json:"expires"`
	events.Client           // the client that opened or refreshed it last
}

// session is a session that may be in use in this process.
type session struct {
	Session
	over  bool
	ended chan struct{} // closed when it has ended
}

func (s *session) end() {
	if !s.over {
		s.over = true
		close(s.ended)
	}
}

// maxSessions limits the sessions of an account. Beyond it, the session that was refreshed the longest ago ends.
const maxSessions = 100

// sessionSecretBytes is the length of a session secret; OWASP ASVS 5.0, 7.2.3, requires at least 16.
const sessionSecretBytes = 32

// sessionPrefix returns the prefix of an account's sessions in SECRETS.
func sessionPrefix(account string) string { return "session." + account }

func sessionKey(account, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return sessionPrefix(account) + "." + hex.EncodeToString(sum[:])
}

func newSecret() string {
	b := make([]byte, sessionSecretBytes)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// applySession applies the value of a session in SECRETS, nil if it was deleted. The value may be late: a session that
// has ended stays ended.
func (a *Accounts) applySession(key string, value []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[key]
	if value == nil {
		if s != nil {
			s.end()
			delete(a.sessions, key)
			delete(a.public, s.ID)
		}
		return
	}
	var stored Session
	if json.Unmarshal(value, &stored) != nil {
		return // an unreadable session is invalid
	}
	if s == nil {
		s = &session{ended: make(chan struct{})}
		a.sessions[key], a.public[stored.ID] = s, s
	}
	s.Session = stored
	if owner := a.accounts[s.Account]; owner != nil && owner.hasEnded(s.Session) {
		s.end()
	}
}

// endSessions ends the sessions that were opened before the account's sessions ended. mu must be held.
func (a *Accounts) endSessions(owner *account) {
	for _, s := range a.sessions {
		if s.Account == owner.ID && owner.hasEnded(s.Session) {
			s.end()
		}
	}
}

func (a *Accounts) loadSessions(ctx context.Context) error {
	return a.secrets.Watch(ctx, "session", func(key string, value []byte) error {
		if key == "" {
			return events.ErrStop
		}
		a.applySession(key, value)
		return nil
	})
}

func (a *Accounts) followSessions(ctx context.Context) error {
	return a.secrets.Watch(ctx, "session", func(key string, value []byte) error {
		if key != "" {
			a.applySession(key, value)
		}
		return nil
	})
}

// sweepEvery is how often expired sessions are removed, and the maximal delay of Ended for them.
const sweepEvery = time.Minute

func (a *Accounts) sweepSessions(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := a.sweep(ctx); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *Accounts) sweep(ctx context.Context) error {
	var over []string
	a.mu.Lock()
	for key, s := range a.sessions {
		if !a.now().Before(s.Expires) {
			s.end()
		}
		if s.over {
			over = append(over, key)
		}
	}
	a.mu.Unlock()
	for _, key := range over {
		if err := a.secrets.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// openSession opens a session. The session ends at once if the account's sessions have ended since it was looked up.
func (a *Accounts) openSession(ctx context.Context, owner account, collection, method string,
	client events.Client) (Token, error) {
	if err := a.makeRoom(ctx, owner.ID); err != nil {
		return Token{}, err
	}
	now, secret := a.now().UTC(), newSecret()
	s := Session{
		ID: events.NewID(), Account: owner.ID, Collection: collection, Since: owner.known(),
		Opened: now, Refreshed: now, Expires: now.Add(tokenLife).Truncate(time.Second), Client: clip(client),
	}
	key := sessionKey(owner.ID, secret)
	value, err := json.Marshal(s)
	if err != nil {
		return Token{}, fmt.Errorf("open session: %w", err)
	}
	if err := a.secrets.Create(ctx, key, value); err != nil {
		return Token{}, err
	}
	a.applySession(key, value)
	by := handlers.Command{Actor: events.UserActor(owner.ID)}
	seq, err := a.record(ctx, owner.ID, by, events.SessionOpened{Session: s.ID, Method: method, Expires: s.Expires,
		Client: s.Client})
	if err != nil {
		return Token{}, errors.Join(err, a.remove(context.WithoutCancel(ctx), key))
	}
	return a.token(owner.Account, s, secret, seq)
}

func (a *Accounts) token(owner Account, s Session, secret string, seq uint64) (Token, error) {
	text, err := a.sign(s, secret)
	if err != nil {
		return Token{}, fmt.Errorf("sign token: %w", err)
	}
	return Token{text, identity(owner, s, secret, s.Expires), seq}, nil
}

// makeRoom ends the session that was refreshed the longest ago if the account has maxSessions.
func (a *Accounts) makeRoom(ctx context.Context, account string) error {
	var held []Session
	a.mu.RLock()
	for _, s := range a.sessions {
		if s.Account == account && !s.over {
			held = append(held, s.Session)
		}
	}
	a.mu.RUnlock()
	if len(held) < maxSessions {
		return nil
	}
	oldest := slices.MinFunc(held, func(x, y Session) int { return x.Refreshed.Compare(y.Refreshed) })
	by := handlers.Command{Actor: events.ActorSystem}
	return a.closeSessions(ctx, by, account, "replaced", func(s Session) bool { return s.ID == oldest.ID })
}

// Refresh extends the session of an identity and returns a new token for it. It returns ErrToken if the session has
// ended. Earlier tokens stay valid until they expire.
func (a *Accounts) Refresh(ctx context.Context, id Identity, client events.Client) (Token, error) {
	owner, err := a.find(ctx, id.Account)
	if errors.As(err, new(handlers.Refused)) {
		return Token{}, ErrToken
	}
	if err != nil {
		return Token{}, err
	}
	key := sessionKey(id.Account, id.secret)
	for range tries {
		old, _, err := a.secrets.Get(ctx, key)
		if err != nil {
			return Token{}, err
		}
		var s Session
		now := a.now().UTC()
		if json.Unmarshal(old, &s) != nil || owner.hasEnded(s) || !now.Before(s.Expires) {
			return Token{}, ErrToken
		}
		s.Refreshed, s.Expires, s.Client = now, now.Add(tokenLife).Truncate(time.Second), clip(client)
		value, err := json.Marshal(s)
		if err != nil {
			return Token{}, fmt.Errorf("refresh session: %w", err)
		}
		swapped, err := a.secrets.Swap(ctx, key, old, value) // fails if the session was revoked meanwhile
		if err != nil {
			return Token{}, err
		}
		if swapped {
			a.applySession(key, value)
			return a.refreshed(ctx, owner.Account, s, id.secret)
		}
	}
	return Token{}, handlers.Refuse(handlers.Conflict, "session: other requests refresh it at this moment; try again")
}

func (a *Accounts) refreshed(ctx context.Context, owner Account, s Session, secret string) (Token, error) {
	by := handlers.Command{Actor: events.UserActor(owner.ID)}
	seq, err := a.record(ctx, owner.ID, by, events.SessionRefreshed{Session: s.ID, Expires: s.Expires, Client: s.Client})
	if err != nil {
		return Token{}, err
	}
	return a.token(owner, s, secret, seq)
}
