package projections

import (
	"fmt"

	"pocketcoder/events"
)

// User is an account.
type User struct {
	Record
	Email    string `db:"email" json:"email"`
	Name     string `db:"name" json:"name"`
	Avatar   string `db:"avatar" json:"avatar"` // always empty
	Role     string `db:"role" json:"role"`     // admin, agent, user
	Verified bool   `db:"verified" json:"verified"`
	Disabled bool   `db:"disabled" json:"disabled"`
}

type users struct{}

func (users) Name() string        { return "users" }
func (users) Schema() string      { return schema("users") }
func (users) Scope() events.Scope { return events.ScopeUser }

// Apply leaves logins and passwords alone: they are nothing clients are shown.
func (users) Apply(tx *Tx, e events.Event, body any) error {
	u, found := tx.users.get(e.Subject.ID)
	switch b := body.(type) {
	case events.AccountCreated:
		if found {
			return fmt.Errorf("account %s exists", u.ID)
		}
		u.Email, u.Name, u.Role, u.Verified = b.Email, b.Name, b.Role, true
	case events.AccountUpdated:
		if !found {
			return fmt.Errorf("account %s was never created", u.ID)
		}
		set(&u.Email, b.Email)
		set(&u.Name, b.Name)
		set(&u.Role, b.Role)
		set(&u.Disabled, b.Disabled)
	case events.Deleted:
		if !found {
			return fmt.Errorf("account %s was never created", u.ID)
		}
		u.Removed = true
	default:
		return nil
	}
	tx.users.put(u)
	return nil
}

// set changes a field to what an event says about it, if it says anything.
func set[V any](field *V, to *V) {
	if to != nil {
		*field = *to
	}
}
