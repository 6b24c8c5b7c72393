package account

import (
	"context"
	"encoding/json"
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// closedChannel is a closed channel, for unknown sessions.
var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// OperatorID stands for the operator of the machine where an account has its id, such as in the actors of events, and
// OperatorSession for the operator's session, which does not end. No account gets this id.
const (
	OperatorID      = "operator"
	OperatorSession = OperatorID
)

// Ended returns a channel that is closed when the session with a public id has ended: revoked, expired (up to a minute
// late), or because its account was disabled, deleted, or got another role or password. Streams of the session end
// then.
func (a *Accounts) Ended(session string) <-chan struct{} {
	if session == OperatorSession {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if s := a.public[session]; s != nil {
		return s.ended
	}
	return closedChannel
}

// storedSession is a session and its key in SECRETS.
type storedSession struct {
	key string
	Session
}

// storedSessions reads the sessions of an account from SECRETS, which also has those that other processes have just
// opened.
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

// Sessions returns the valid sessions of an account, the last used first.
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
		if a.now().Before(s.Expires) && !owner.hasEnded(s.Session) {
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

// closeSessions ends the matching sessions of an account, and records the reason. Codes that were confirmed for the
// account work no more.
func (a *Accounts) closeSessions(ctx context.Context, c handlers.Command, account, reason string,
	which func(Session) bool) error {
	if err := a.withdrawCodes(ctx, account); err != nil {
		return err
	}
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

// remove deletes a session from SECRETS and ends it in this process. The session stays in memory until SECRETS reports
// the deletion, because an earlier report of it may still arrive and would restore it.
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
