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

// Session is a login that holds, as SECRETS keeps it.
type Session struct {
	ID            string    `json:"id"` // public: who knows it cannot act as it
	Account       string    `json:"account"`
	Collection    string    `json:"collection"`
	Since         uint64    `json:"since"` // sequence of what was known of the account when it was opened
	Opened        time.Time `json:"opened"`
	Refreshed     time.Time `json:"refreshed"`
	Expires       time.Time `json:"expires"`
	events.Client           // who opened or refreshed it last
}

// session is one that may still be in use here.
type session struct {
	Session
	over  bool
	ended chan struct{} // closed when it is over
}

func (s *session) end() {
	if !s.over {
		s.over = true
		close(s.ended)
	}
}

// maxSessions is how many an account may hold. One more ends that which was refreshed the longest ago.
const maxSessions = 100

// sessionSecretBytes are random; OWASP ASVS 5.0, 7.2.3, asks for 16 at least.
const sessionSecretBytes = 32

// sessionPrefix is where SECRETS holds an account's sessions.
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

// keep takes in what SECRETS holds of a session, nil when it is gone. It may come late: a session that is over stays
// so.
func (a *Accounts) keep(key string, value []byte) {
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
		return // unreadable, so nobody has it
	}
	if s == nil {
		s = &session{ended: make(chan struct{})}
		a.sessions[key], a.public[stored.ID] = s, s
	}
	s.Session = stored
	if owner := a.accounts[s.Account]; owner != nil && owner.over(s.Session) {
		s.end()
	}
}

// endSessions ends those that were opened before the account's sessions ended. mu is held.
func (a *Accounts) endSessions(owner *account) {
	for _, s := range a.sessions {
		if s.Account == owner.ID && owner.over(s.Session) {
			s.end()
		}
	}
}

func (a *Accounts) loadSessions(ctx context.Context) error {
	return a.secrets.Watch(ctx, "session", func(key string, value []byte) error {
		if key == "" {
			return events.ErrStop
		}
		a.keep(key, value)
		return nil
	})
}

func (a *Accounts) followSessions(ctx context.Context) error {
	return a.secrets.Watch(ctx, "session", func(key string, value []byte) error {
		if key != "" {
			a.keep(key, value)
		}
		return nil
	})
}

// sweepEvery is how often sessions that are over are removed, and so how late Ended tells of one that expired.
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

// openSession begins a session. It is over at once if the account was ended since it was looked up.
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
	a.keep(key, value)
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

// makeRoom ends the session that was refreshed the longest ago when the account has as many as it may.
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

// Refresh extends the session of who was checked, and gives a new token for it; it fails with ErrToken when the
// session is over. Earlier tokens hold as long as they say.
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
		if json.Unmarshal(old, &s) != nil || owner.over(s) || !now.Before(s.Expires) {
			return Token{}, ErrToken
		}
		s.Refreshed, s.Expires, s.Client = now, now.Add(tokenLife).Truncate(time.Second), clip(client)
		value, err := json.Marshal(s)
		if err != nil {
			return Token{}, fmt.Errorf("refresh session: %w", err)
		}
		swapped, err := a.secrets.Swap(ctx, key, old, value) // never a session that was revoked meanwhile
		if err != nil {
			return Token{}, err
		}
		if swapped {
			a.keep(key, value)
			return a.refreshed(ctx, owner.Account, s, id.secret)
		}
	}
	return Token{}, handlers.Refuse(handlers.Conflict, "session: it is being refreshed by others")
}

func (a *Accounts) refreshed(ctx context.Context, owner Account, s Session, secret string) (Token, error) {
	by := handlers.Command{Actor: events.UserActor(owner.ID)}
	seq, err := a.record(ctx, owner.ID, by, events.SessionRefreshed{Session: s.ID, Expires: s.Expires, Client: s.Client})
	if err != nil {
		return Token{}, err
	}
	return a.token(owner, s, secret, seq)
}
