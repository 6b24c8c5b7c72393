package account

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
)

// CreateAccount is the command to create an account. The caller may choose the id. A repetition with the same id
// changes nothing.
type CreateAccount struct {
	handlers.Command
	Account  string `json:"account,omitempty"`
	Email    string `json:"email"`
	Name     string `json:"name,omitempty"`
	Role     string `json:"role"`
	Password string `json:"password"`
}

func (a *Accounts) CreateAccount(ctx context.Context, c CreateAccount) (account string, seq uint64, err error) {
	return a.create(ctx, c, func() error { return nil })
}

// create creates an account if allowed, which is called with mu held, returns nil.
func (a *Accounts) create(ctx context.Context, c CreateAccount,
	allowed func() error) (account string, seq uint64, err error) {
	c.Account = cmp.Or(c.Account, events.NewID())
	c.Email, c.Name = strings.TrimSpace(c.Email), strings.TrimSpace(c.Name)
	if err := c.check(); err != nil {
		return "", 0, err
	}
	decide := func() ([]events.Data, uint64, error) {
		d, seq, err := a.decideCreate(c)
		if err == nil && d != nil {
			err = allowed()
		}
		return d, seq, err
	}
	if err := a.refresh(ctx); err != nil {
		return "", 0, err
	}
	a.mu.RLock()
	_, _, err = decide()
	a.mu.RUnlock()
	if err != nil {
		return "", 0, err // before the password is hashed
	}
	made, err := a.createPassword(ctx, c.Account, c.Password)
	if err != nil {
		return "", 0, err
	}
	seq, err = a.decide(ctx, c.Command, c.Account, decide)
	if made && errors.As(err, new(handlers.Refused)) {
		err = errors.Join(err, a.secrets.Delete(ctx, passwordKey(c.Account)))
	}
	return c.Account, seq, err
}

// createPassword stores the password of an account before the account is appended, so an account in the log always has
// one. An existing password must be the same, as in a repeated command.
func (a *Accounts) createPassword(ctx context.Context, account, password string) (made bool, err error) {
	hash, err := a.hash(ctx, password)
	if err != nil {
		return false, err
	}
	err = a.secrets.Create(ctx, passwordKey(account), []byte(hash))
	if !errors.Is(err, secret.ErrExists) {
		return err == nil, err
	}
	stored, _, err := a.secrets.Get(ctx, passwordKey(account))
	if err != nil {
		return false, err
	}
	same, err := a.matches(ctx, string(stored), password)
	if err == nil && !same {
		err = exists(account)
	}
	return false, err
}

func (a *Accounts) decideCreate(c CreateAccount) ([]events.Data, uint64, error) {
	if known := a.accounts[c.Account]; known != nil {
		if known.deleted || known.Email != c.Email || known.Name != c.Name || known.Role != c.Role {
			return nil, 0, exists(c.Account)
		}
		return nil, known.changed, nil
	}
	if a.byEmail(c.Email) != nil {
		return nil, 0, taken(c.Email)
	}
	if err := a.refuseSecret(&c.Email, &c.Name); err != nil {
		return nil, 0, err
	}
	return []events.Data{events.AccountCreated{Email: c.Email, Name: c.Name, Role: c.Role}}, 0, nil
}

// refuseSecret refuses an email address or a name with a secret in it. nil is not checked.
func (a *Accounts) refuseSecret(email, name *string) error {
	for field, text := range map[string]*string{"email": email, "name": name} {
		body, err := json.Marshal(text)
		if err == nil {
			err = handlers.RefuseSecret(a.log.Redactor(), field, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func exists(id string) error {
	return handlers.Refuse(handlers.Conflict, "account: %s exists already", id)
}

func taken(email string) error {
	return handlers.Refuse(handlers.Conflict, "email: %s belongs to another account", email)
}

// UpdateAccount is the command to change an account; a nil field is unchanged. Disabling the account or changing its
// role ends its sessions.
type UpdateAccount struct {
	handlers.Command
	Account  string  `json:"account"`
	Email    *string `json:"email,omitempty"`
	Name     *string `json:"name,omitempty"`
	Role     *string `json:"role,omitempty"`
	Disabled *bool   `json:"disabled,omitempty"`
}

// UpdateAccount changes an account. It appends nothing if nothing changes.
func (a *Accounts) UpdateAccount(ctx context.Context, c UpdateAccount) (uint64, error) {
	c.Email, c.Name = trimmed(c.Email), trimmed(c.Name)
	if err := c.check(); err != nil {
		return 0, err
	}
	var reason string
	seq, err := a.decide(ctx, c.Command, c.Account, func() ([]events.Data, uint64, error) {
		d, seq, err := a.decideUpdate(c)
		if err != nil || d == (events.AccountUpdated{}) {
			return nil, seq, err
		}
		if reason = ""; d.Disabled != nil && *d.Disabled {
			reason = "disabled"
		} else if d.Role != nil {
			reason = "role"
		}
		return []events.Data{d}, 0, nil
	})
	if err != nil || reason == "" {
		return seq, err
	}
	return seq, a.closeSessions(ctx, c.Command, c.Account, reason, func(s Session) bool { return s.Since < seq })
}

func trimmed(s *string) *string {
	if s == nil {
		return nil
	}
	t := strings.TrimSpace(*s)
	return &t
}

// decideUpdate returns what would change.
func (a *Accounts) decideUpdate(c UpdateAccount) (events.AccountUpdated, uint64, error) {
	var d events.AccountUpdated
	known := a.accounts[c.Account]
	if known == nil || known.deleted {
		return d, 0, notFound(c.Account)
	}
	d.Email, d.Name = changedValue(known.Email, c.Email), changedValue(known.Name, c.Name)
	if err := a.refuseSecret(d.Email, d.Name); err != nil {
		return d, 0, err
	}
	d.Role, d.Disabled = changedValue(known.Role, c.Role), changedValue(known.Disabled, c.Disabled)
	if d.Email != nil {
		if other := a.byEmail(*d.Email); other != nil && other != known {
			return d, 0, taken(*d.Email)
		}
	}
	if known.active() && known.Role == Admin && a.admins() == 1 {
		if d.Disabled != nil {
			return d, 0, handlers.Refuse(handlers.Conflict, "disabled: %s is the last admin", known.Email)
		}
		if d.Role != nil {
			return d, 0, handlers.Refuse(handlers.Conflict, "role: %s is the last admin", known.Email)
		}
	}
	return d, known.changed, nil
}

// changedValue returns the wanted value, nil if it is the current one.
func changedValue[T comparable](is T, wanted *T) *T {
	if wanted == nil || *wanted == is {
		return nil
	}
	return wanted
}

// DeleteAccount is the command to delete an account with its password and sessions. Its id is never used again; its
// email may be.
type DeleteAccount struct {
	handlers.Command
	Account string `json:"account"`
}

// DeleteAccount deletes an account. A repetition changes nothing.
func (a *Accounts) DeleteAccount(ctx context.Context, c DeleteAccount) (uint64, error) {
	if err := checkID(c.Account); err != nil {
		return 0, err
	}
	seq, err := a.decide(ctx, c.Command, c.Account, func() ([]events.Data, uint64, error) { return a.decideDelete(c) })
	if err != nil {
		return 0, err
	}
	if err := a.closeSessions(ctx, c.Command, c.Account, "deleted", func(Session) bool { return true }); err != nil {
		return 0, err
	}
	return seq, a.secrets.Delete(ctx, passwordKey(c.Account))
}

func (a *Accounts) decideDelete(c DeleteAccount) ([]events.Data, uint64, error) {
	known := a.accounts[c.Account]
	switch {
	case known == nil:
		return nil, 0, notFound(c.Account)
	case known.deleted:
		return nil, known.ended, nil
	case known.active() && known.Role == Admin && a.admins() == 1:
		return nil, 0, handlers.Refuse(handlers.Conflict, "account: %s is the last admin", known.Email)
	case known.Disabled:
		return []events.Data{events.Deleted{}}, 0, nil
	}
	disabled := true
	return []events.Data{events.AccountUpdated{Disabled: &disabled}, events.Deleted{}}, 0, nil
}

// Find returns an account that may log in.
func (a *Accounts) Find(ctx context.Context, id string) (Account, error) {
	found, err := a.find(ctx, id)
	if err == nil && found.Disabled {
		err = notFound(id)
	}
	return found.Account, err
}

// List returns the accounts, the oldest first.
func (a *Accounts) List(ctx context.Context) ([]Account, error) {
	if err := a.refresh(ctx); err != nil {
		return nil, err
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	list := []Account{}
	for _, known := range a.accounts {
		if !known.deleted {
			list = append(list, known.Account)
		}
	}
	slices.SortFunc(list, func(x, y Account) int {
		if c := x.Created.Compare(y.Created); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	return list, nil
}
