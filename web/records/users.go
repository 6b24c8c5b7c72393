package records

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
)

func createUser(s *Records, ctx context.Context, w change) (string, uint64, error) {
	password, err := newPassword(w)
	if err != nil {
		return "", 0, err
	}
	if password == "" {
		return "", 0, api.BadField("password", "validation_required", "Cannot be blank.")
	}
	email, _ := w.text("email")
	name, _ := w.text("name")
	role, _ := w.text("role")
	role = cmp.Or(role, account.User)
	return s.API.Accounts.CreateAccount(ctx, account.CreateAccount{Command: w.Command, Account: w.id, Email: email,
		Name: name, Role: role, Password: password})
}

// updateUser changes an account. Accounts other than administrators change their own name and email, and their
// password with the old one.
func updateUser(s *Records, ctx context.Context, w change) (string, uint64, error) {
	c := account.UpdateAccount{Command: w.Command, Account: w.id}
	for name, into := range map[string]**string{"email": &c.Email, "name": &c.Name, "role": &c.Role} {
		if v, given := w.text(name); given && v != w.oldText(name) {
			*into = &v
		}
	}
	if raw, changes := w.changed()["disabled"]; changes {
		disabled := string(raw) == "true"
		c.Disabled = &disabled
	}
	if (c.Role != nil || c.Disabled != nil) && !w.caller.Is(account.Admin) {
		return "", 0, api.Forbidden("Only administrators change the role of an account, or disable it.")
	}
	password, err := newPassword(w)
	if err != nil {
		return "", 0, err
	}
	if password == "" {
		seq, err := s.API.Accounts.UpdateAccount(ctx, c)
		return w.id, seq, err
	}
	if c.Email != nil || c.Name != nil || c.Role != nil || c.Disabled != nil {
		return "", 0, api.BadField("password", "validation_invalid_value",
			"A password must be changed in a request of its own, without other fields.")
	}
	set := account.SetPassword{Command: w.Command, Account: w.id, Password: password}
	if w.id == w.caller.Account {
		set.Keep = w.caller.Session
	}
	if old, given := w.text("oldPassword"); given || !w.caller.Is(account.Admin) {
		set.Old = &old
	}
	seq, err := s.API.Accounts.SetPassword(ctx, set)
	if r := (handlers.Refused{}); errors.As(err, &r) && strings.HasPrefix(r.Text, "old:") {
		return "", 0, api.BadField("oldPassword", "validation_invalid_old_password", "Missing or invalid old password.")
	}
	return w.id, seq, err
}

// newPassword returns the password of a body, empty for none.
func newPassword(w change) (string, error) {
	password, confirm := textValue(w.set["password"]), textValue(w.set["passwordConfirm"])
	if _, given := w.set["passwordConfirm"]; given && confirm != password {
		return "", api.BadField("passwordConfirm", "validation_values_mismatch", "Values don't match.")
	}
	return password, nil
}

func deleteUser(s *Records, ctx context.Context, w change) (string, uint64, error) {
	seq, err := s.API.Accounts.DeleteAccount(ctx, account.DeleteAccount{Command: w.Command, Account: w.id})
	return w.id, seq, err
}
