package events

// What the catalogue holds besides what happens in chats: accounts, their sessions, and the records people keep.

import (
	"encoding/json"
	"time"
)

// Saved is a config record as it is from now on, whole.
type Saved struct {
	Fields json.RawMessage `json:"fields"` // object, by the names of the collection's fields
}

// AccountCreated is a new account. Its password, like every secret, is in the SECRETS bucket.
type AccountCreated struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
	Role  string `json:"role"` // admin, agent, user
}

// AccountUpdated changes an account; a nil field stays as it was. A disabled one can do nothing.
type AccountUpdated struct {
	Email    *string `json:"email,omitempty"`
	Name     *string `json:"name,omitempty"`
	Role     *string `json:"role,omitempty"`
	Disabled *bool   `json:"disabled,omitempty"`
}

// PasswordChanged says an account has another password. It ends the account's sessions but one.
type PasswordChanged struct {
	Keep string `json:"keep,omitempty"` // public id of the session that goes on
}

// Client is where a request came from, as far as it says.
type Client struct {
	Address string `json:"address,omitempty"` // IP
	Device  string `json:"device,omitempty"`  // User-Agent
}

// SessionOpened is a login that succeeded.
type SessionOpened struct {
	Session string    `json:"session"` // its public id; who knows it cannot act as it
	Method  string    `json:"method"`  // password, setup
	Expires time.Time `json:"expires"`
	Client
}

// SessionRefreshed is a token exchanged for a new one of the same session.
type SessionRefreshed struct {
	Session string    `json:"session"`
	Expires time.Time `json:"expires"`
	Client
}

// SessionClosed is a session's end before its time.
type SessionClosed struct {
	Session string `json:"session"`
	Reason  string `json:"reason"` // revoked, disabled, password, role, deleted, replaced
}

// LoginFailed is a login that was refused: of an account, or, in the audit scope, under a name nobody has. The name is
// not kept, because people type their password there.
type LoginFailed struct {
	Reason string `json:"reason"` // password, disabled, role, backoff, unknown, setup
	Client
}

// ChatSeen means that an account has seen a chat up to an event. It sees what came before, too.
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
