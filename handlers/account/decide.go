package account

import (
	"context"
	"errors"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
)

// refresh applies the new events of the log.
func (a *Accounts) refresh(ctx context.Context) error {
	a.deciding.Lock()
	defer a.deciding.Unlock()
	return a.advance(ctx)
}

// advance is refresh with deciding locked.
func (a *Accounts) advance(ctx context.Context) error {
	return a.log.Advance(ctx, a.folded, func(e events.Event) error { a.apply(e); return nil })
}

// apply applies an event. It may be called twice with an event, by a command and by Run.
func (a *Accounts) apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return // not an event about an account
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id := e.Subject.ID
	known := a.accounts[id]
	switch d := d.(type) {
	case events.AccountCreated:
		if known == nil {
			a.accounts[id] = &account{Account: Account{id, d.Email, d.Name, d.Role, false, e.Time}, changed: e.Seq}
		}
	case events.AccountUpdated:
		if known != nil && e.Seq > known.changed && known.update(d, e.Seq) {
			a.endSessions(known)
		}
	case events.Deleted:
		if known != nil && !known.deleted {
			known.deleted, known.ended = true, e.Seq
			a.endSessions(known)
		}
	case events.PasswordChanged:
		if known != nil && e.Seq > known.password {
			known.changePassword(d, e.Seq)
			a.endSessions(known)
		}
	}
}

// tries limits how often a command is decided again after a conflict with another process.
const tries = 5

// decide carries out a command: it applies new events, calls f, and appends the events of f at once, on the condition
// that no account has changed. After a conflict it begins again. If f returns no events, decide returns the sequence of
// f.
func (a *Accounts) decide(ctx context.Context, c handlers.Command, id string,
	f func() (all []events.Data, seq uint64, err error)) (uint64, error) {
	a.deciding.Lock()
	defer a.deciding.Unlock()
	for range tries {
		if err := a.advance(ctx); err != nil {
			return 0, err
		}
		a.mu.RLock()
		all, seq, err := f()
		a.mu.RUnlock()
		if err != nil || len(all) == 0 {
			return seq, err
		}
		writes := make([]log.Write, len(all))
		for i, d := range all {
			if writes[i].Event, err = a.event(id, c, d); err != nil {
				return 0, err
			}
		}
		writes[0].Expect = log.Expect{Filter: changes, Last: a.folded.Last(changes)}
		seq, err = a.log.Commit(ctx, writes)
		if errors.Is(err, log.ErrConflict) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return seq, a.advance(ctx)
	}
	return 0, handlers.Refuse(handlers.Conflict, "The accounts changed %d times while this was decided. Try again.", tries)
}

func (a *Accounts) event(id string, c handlers.Command, d events.Data) (events.Event, error) {
	e, err := events.NewUser(id, c.Actor, d)
	e.Time = a.now().UTC()
	return e.CausedBy(c.ID), err
}

// record appends an event that needs no decision.
func (a *Accounts) record(ctx context.Context, id string, c handlers.Command, d events.Data) (uint64, error) {
	e, err := a.event(id, c, d)
	if err != nil {
		return 0, err
	}
	return a.log.Append(ctx, e) // also while the disk is almost full, because failed logins must count
}

// find returns an account that is not deleted.
func (a *Accounts) find(ctx context.Context, id string) (account, error) {
	if err := a.refresh(ctx); err != nil {
		return account{}, err
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if known := a.accounts[id]; known != nil && !known.deleted {
		return *known, nil
	}
	return account{}, notFound(id)
}

// byEmail returns the account with an email, ignoring case. mu must be held.
func (a *Accounts) byEmail(email string) *account {
	email = fold(email)
	for _, known := range a.accounts {
		if !known.deleted && fold(known.Email) == email {
			return known
		}
	}
	return nil
}

// fold returns the form of an email for comparisons.
func fold(email string) string { return strings.ToLower(strings.TrimSpace(email)) }

// admins returns the number of administrators who can log in. mu must be held.
func (a *Accounts) admins() (n int) {
	for _, known := range a.accounts {
		if known.active() && known.Role == Admin {
			n++
		}
	}
	return n
}

func notFound(id string) error {
	return handlers.Refuse(handlers.NotFound, "account: there is no account %q", id)
}
