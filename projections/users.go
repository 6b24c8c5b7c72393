package projections

import (
	"fmt"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// User is an account, without anything that belongs to a login.
type User struct {
	store.Record
	Email    string `db:"email" json:"email"`
	Name     string `db:"name" json:"name"`
	Avatar   string `db:"avatar" json:"avatar"` // always empty
	Role     string `db:"role" json:"role"`     // admin, agent, user
	Verified bool   `db:"verified" json:"verified"`
	Disabled bool   `db:"disabled" json:"disabled"`
}

// updateUsers applies an event of an account. It ignores logins and passwords: clients do not see them.
func updateUsers(t *tables, e events.Event, body any) error {
	u, found := t.users.Get(e.Subject.ID)
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
	t.users.Put(u)
	return nil
}
