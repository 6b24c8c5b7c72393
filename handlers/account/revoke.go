package account

import (
	"context"
	"encoding/json"
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// over is closed: that of a session nobody has.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Ended is closed once a session, by its public id, is over: revoked, expired (up to a minute late), or its account was
// disabled, deleted, or given another role or password. Streams that were opened with it end then.
func (a *Accounts) Ended(session string) <-chan struct{} {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if s := a.public[session]; s != nil {
		return s.ended
	}
	return over
}

// storedSession is a session with its key in SECRETS.
type storedSession struct {
	key string
	Session
}

// storedSessions reads the sessions of an account from SECRETS: those opened by other processes a moment ago are in it.
func (a *Accounts) storedSessions(ctx context.Context, account string) ([]storedSession, error) {
	found := map[string]storedSession{}
	err := a.secrets.Watch(ctx, sessionPrefix(account), func(key string, value []byte) error {
		if key == "" {
			return events.ErrStop
		}
		s := storedSession{key: key}
		if delete(found, key); json.Unmarshal(value, &s.Session) == nil {
			found[key] = s
		}
		return nil
	})
	list := make([]storedSession, 0, len(found))
	for _, s := range found {
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y storedSession) int { return y.Refreshed.Compare(x.Refreshed) })
	return list, err
}

// Sessions gives the sessions of an account that hold, those used last first.
func (a *Accounts) Sessions(ctx context.Context, account string) ([]Session, error) {
	owner, err := a.find(ctx, account)
	if err != nil {
		return nil, err
	}
	all, err := a.storedSessions(ctx, account)
	if err != nil {
		return nil, err
	}
	list := []Session{}
	for _, s := range all {
		if a.now().Before(s.Expires) && !owner.over(s.Session) {
			list = append(list, s.Session)
		}
	}
	return list, nil
}

// RevokeSession ends a session of an account, by its public id, or all of them when it is empty.
type RevokeSession struct {
	handlers.Command
	Account string `json:"account"`
	Session string `json:"session,omitempty"`
}

func (a *Accounts) Revoke(ctx context.Context, c RevokeSession) error {
	sessions, err := a.Sessions(ctx, c.Account)
	if err != nil {
		return err
	}
	if c.Session != "" && !slices.ContainsFunc(sessions, func(s Session) bool { return s.ID == c.Session }) {
		return handlers.Refuse(handlers.NotFound, "session: the account has no session %q", c.Session)
	}
	return a.closeSessions(ctx, c.Command, c.Account, "revoked", func(s Session) bool {
		return c.Session == "" || s.ID == c.Session
	})
}

// closeSessions ends the sessions of an account that which is true of, and records why.
func (a *Accounts) closeSessions(ctx context.Context, c handlers.Command, account, reason string,
	which func(Session) bool) error {
	all, err := a.storedSessions(ctx, account)
	if err != nil {
		return err
	}
	for _, s := range all {
		if !which(s.Session) {
			continue
		}
		if err := a.remove(ctx, s.key); err != nil {
			return err
		}
		if _, err := a.record(ctx, account, c, events.SessionClosed{Session: s.ID, Reason: reason}); err != nil {
			return err
		}
	}
	return nil
}

// remove takes a session out of SECRETS and ends it here. It is forgotten when SECRETS tells of its end, not before:
// what SECRETS told earlier may still be on its way, and would bring it back.
func (a *Accounts) remove(ctx context.Context, key string) error {
	if err := a.secrets.Delete(ctx, key); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[key]; s != nil {
		s.end()
	}
	return nil
}
