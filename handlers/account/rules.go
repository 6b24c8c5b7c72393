package account

import (
	_ "embed"
	"net/mail"
	"slices"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// Limits of names, emails and passwords, in bytes. A password has at least 8 bytes of any kind (OWASP ASVS 5.0, 6.2).
const (
	maxEmail    = 255
	maxName     = 255
	minPassword = 8
	maxPassword = 1024
)

// common are the passwords that attackers try first, in lower case, one a line.
//
//go:embed common.txt
var common string

var commonPasswords = strings.Fields(common)

func (c CreateAccount) check() error {
	if err := checkID(c.Account); err != nil {
		return err
	}
	if c.Account == OperatorID {
		return handlers.Refuse(handlers.Invalid, "account: the id %q is reserved", c.Account)
	}
	if err := checkEmail(c.Email); err != nil {
		return err
	}
	if err := checkName(c.Name); err != nil {
		return err
	}
	if err := checkRole(c.Role); err != nil {
		return err
	}
	return checkPassword(c.Password, c.Email)
}

func (c UpdateAccount) check() error {
	if err := checkID(c.Account); err != nil {
		return err
	}
	for _, field := range []struct {
		value *string
		check func(string) error
	}{{c.Email, checkEmail}, {c.Name, checkName}, {c.Role, checkRole}} {
		if field.value == nil {
			continue
		}
		if err := field.check(*field.value); err != nil {
			return err
		}
	}
	return nil
}

func checkID(id string) error {
	if _, err := events.ParseID(id); err != nil {
		return handlers.Refuse(handlers.Invalid, "account: %v", err)
	}
	return nil
}

func checkEmail(email string) error {
	if len(email) > maxEmail {
		return handlers.Refuse(handlers.Invalid, "email: want at most %d bytes, got %d", maxEmail, len(email))
	}
	if parsed, err := mail.ParseAddress(email); err != nil || parsed.Name != "" || parsed.Address != email {
		return handlers.Refuse(handlers.Invalid, "email: %q is not an address like name@example.org", email)
	}
	return nil
}

func checkName(name string) error {
	if len(name) > maxName || !utf8.ValidString(name) {
		return handlers.Refuse(handlers.Invalid, "name: want at most %d bytes of UTF-8, got %d", maxName, len(name))
	}
	return nil
}

func checkRole(role string) error {
	if !slices.Contains([]string{Admin, Agent, User}, role) {
		return handlers.Refuse(handlers.Invalid, "role: want %s, %s or %s, got %q", Admin, Agent, User, role)
	}
	return nil
}

func checkPassword(password, email string) error {
	switch {
	case len(password) < minPassword || len(password) > maxPassword:
		return handlers.Refuse(handlers.Invalid, "password: want %d to %d bytes, got %d", minPassword, maxPassword,
			len(password))
	case !utf8.ValidString(password):
		return handlers.Refuse(handlers.Invalid, "password: it is not UTF-8")
	case fold(password) == fold(email):
		return handlers.Refuse(handlers.Invalid, "password: it is the email")
	case slices.Contains(commonPasswords, strings.ToLower(password)):
		return handlers.Refuse(handlers.Invalid, "password: it is one of the most common passwords; choose another")
	}
	return nil
}
