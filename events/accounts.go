package events

// What the catalogue holds besides what happens in chats: accounts, their sessions, and the records people keep.

import (
	"encoding/json"
	"net/netip"
	"time"
)

// Saved holds all fields of a configuration record, and replaces the earlier ones.
type Saved struct {
	Fields json.RawMessage `json:"fields"` // object, by the names of the collection's fields
}

// AccountCreated is a new account. Its password, like every secret, is in the SECRETS bucket.
type AccountCreated struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
	Role  string `json:"role"` // admin, agent, user
}

// AccountUpdated changes an account. A nil field does not change. A disabled account can do nothing.
type AccountUpdated struct {
	Email    *string `json:"email,omitempty"`
	Name     *string `json:"name,omitempty"`
	Role     *string `json:"role,omitempty"`
	Disabled *bool   `json:"disabled,omitempty"`
}

// PasswordChanged means that an account has a new password. It ends all sessions of the account except Keep.
type PasswordChanged struct {
	Keep string `json:"keep,omitempty"` // public id of the session that goes on
}

// Client is the address and the device that a request came from, as far as they are known.
type Client struct {
	Address string `json:"address,omitempty"` // IP
	Device  string `json:"device,omitempty"`  // User-Agent
}

// Network returns the key by which requests are limited: the address, or the first 64 bits of an IPv6 address, because
// one connection to the Internet has all addresses that begin with them.
func (c Client) Network() string {
	address, err := netip.ParseAddr(c.Address)
	if err != nil || address.Unmap().Is4() {
		return c.Address
	}
	prefix, _ := address.Prefix(64) // every IPv6 address has one
	return prefix.String()
}

// SessionOpened is a successful login.
type SessionOpened struct {
	Session string    `json:"session"` // its public id, which is no credential
	Method  string    `json:"method"`  // password, setup, code
	Expires time.Time `json:"expires"`
	Client
}

// SessionRefreshed means that a token was exchanged for a new one of the same session.
type SessionRefreshed struct {
	Session string    `json:"session"`
	Expires time.Time `json:"expires"`
	Client
}

// SessionClosed means that a login session was ended before it expired.
type SessionClosed struct {
	Session string `json:"session"`
	Reason  string `json:"reason"` // revoked, disabled, password, role, deleted, replaced
}

// LoginFailed is a refused login. It is an event of the account, or of the audit scope if no account has the name. The
// name is not stored, because people type their password there.
type LoginFailed struct {
	Reason string `json:"reason"` // password, disabled, role, backoff, unknown, setup
	Client
}

// ChatSeen means that an account has seen all events of a chat up to Seq.
type ChatSeen struct {
	Chat string `json:"chat"`
	Seq  uint64 `json:"seq"` // of the last event that it has seen
}

func (Saved) Kind() string            { return "saved" }
func (AccountCreated) Kind() string   { return "account.created" }
func (AccountUpdated) Kind() string   { return "account.updated" }
func (PasswordChanged) Kind() string  { return "password.changed" }
func (SessionOpened) Kind() string    { return "session.opened" }
func (SessionRefreshed) Kind() string { return "session.refreshed" }
func (SessionClosed) Kind() string    { return "session.closed" }
func (LoginFailed) Kind() string      { return "login.failed" }
func (ChatSeen) Kind() string         { return "chat.seen" }
