// Package channel carries out the commands on channels: messengers through which people talk to the assistant. It pairs
// people with accounts, receives their messages, carries out the decisions of their buttons, and records the messages
// that are sent. Devices, which only receive notifications, are records here too; no list shows their push tokens.
//
// Promises: the platform's id identifies a sender, never a name or the text of a message. Nothing from an unpaired
// sender is answered or stored. An update of a platform that comes twice has one effect. A pairing code and a
// button work once. A button decides the request that was shown with it, for a sender who is paired with an account
// that may decide.
//
// It must not know the protocol of a platform, or HTTP.
package channel

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
)

// The config collections of channels. Clients write the first; the other two follow from what happens.
const (
	Collection    = "channels"
	Pairings      = "pairings"
	Conversations = "conversations"
)

// Kinds of channels.
const (
	Telegram = "telegram" // a bot of Telegram
	Email    = "email"    // a mailbox
)

// Channel is a messenger that people write to. Its token is a secret: that of the bot, or the password of the mailbox.
type Channel struct {
	ID      string `json:"id"`
	Seq     uint64 `json:"-"` // of its last change
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Enabled bool   `json:"enabled"`
	Server  string `json:"server"`  // URL of the Bot API server in place of the platform's, or of the IMAP server
	Trigger string `json:"trigger"` // word that begins a message to the assistant in a group

	// Of a mailbox: its address, the URL of the SMTP server, and the names with which the receiving servers mark their
	// Authentication-Results headers, separated by blanks.
	Address  string `json:"address"`
	SMTP     string `json:"smtp"`
	Authserv string `json:"authserv_id"`
}

// Pairing says that a sender in a conversation of a channel acts for an account.
type Pairing struct {
	ID      string `json:"id"`
	Channel string `json:"channel"`
	Address string `json:"address"` // the platform's id of the sender
	Place   string `json:"place"`   // the platform's id of the conversation
	User    string `json:"user"`
	Name    string `json:"name"` // of the sender, as the platform showed it
	Group   bool   `json:"group"`
	Expires string `json:"expires_at"` // 2006-01-02 15:04:05.000Z
}

// conversation is the record that assigns a chat to a conversation in a messenger. In a mailbox a conversation is one
// thread of one sender.
type conversation struct {
	Channel string `json:"channel"`
	Place   string `json:"place"`
	Chat    string `json:"chat"`
	User    string `json:"user"` // owner of the chat
}

// Channels carries out the commands on channels. All exported fields must be set.
type Channels struct {
	Log      *log.Log
	Secrets  *secret.Store
	Records  *record.Records
	Chats    *chat.Chats
	Accounts *account.Accounts

	Decide func(context.Context, permission.Decide) (uint64, error)
	// AwaitReadModels waits until the read models include an event. CountWaiting counts the waiting messages of a chat,
	// and those that a stop of the turn holds. IsSubmitted reports whether a message is in a chat.
	AwaitReadModels func(ctx context.Context, seq uint64) error
	CountWaiting    func(ctx context.Context, chat string) (waiting, held int, err error)
	IsSubmitted     func(ctx context.Context, message string) (bool, error)

	wrong counter    // codes, by sender
	pair  sync.Mutex // held while a code is used
	posts sync.Mutex // held while a webhook begins a chat, so that each counts those before
}

// List returns the channels in the order of their last changes.
func (h *Channels) List(ctx context.Context) ([]Channel, error) {
	return record.List(ctx, h.Records, Collection, func(r record.StoredRecord[Channel]) Channel {
		r.Value.ID, r.Value.Seq = r.ID, r.Seq
		return r.Value
	})
}

// Pairings returns the pairings in the order of their last changes, expired ones too.
func (h *Channels) Pairings(ctx context.Context) ([]Pairing, error) {
	return record.List(ctx, h.Records, Pairings, func(r record.StoredRecord[Pairing]) Pairing {
		r.Value.ID = r.ID
		return r.Value
	})
}

const (
	maxToken   = 256 // bytes
	maxTrigger = 32  // bytes
)

// completeChannel refuses a change after which the channel would not be valid.
func completeChannel(c record.Change) error {
	one, err := record.Read[Channel](c.Now())
	switch {
	case err != nil:
		return record.Invalid("name", "The fields of the channel cannot be read: %v.", err)
	case len(one.Trigger) > maxTrigger || !utf8.ValidString(one.Trigger):
		return record.Invalid("trigger", "Must be at most %d bytes.", maxTrigger)
	case one.Kind == Telegram:
		return one.checkBot(c.Secret)
	case one.Kind == Email:
		return one.checkMailbox(c.Secret)
	}
	return record.Invalid("kind", "Must be %s or %s.", Telegram, Email)
}

func (c Channel) checkBot(token string) error {
	if !serverURL(c.Server, "https", "http") && c.Server != "" || strings.Contains(c.Server, "@") {
		return record.Invalid("server", "Must be a URL such as https://bots.example.org.")
	}
	if len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		return record.Invalid("token", "Must be at most %d printable characters, without blanks and /.", maxToken)
	}
	return nil
}

func (c Channel) checkMailbox(token string) error {
	_, valid := MailAddress(c.Address)
	switch {
	case !valid:
		return record.Invalid("address", "Must be the address of the mailbox, such as assistant@example.org.")
	case !serverURL(c.Server, "imaps", "imap"):
		return record.Invalid("server", "Must be the URL of the IMAP server, such as imaps://imap.example.org.")
	case !serverURL(c.SMTP, "smtps", "smtp"):
		return record.Invalid("smtp", "Must be the URL of the SMTP server, such as smtps://smtp.example.org.")
	case strings.Contains(c.Authserv, "="):
		return record.Invalid("authserv_id", "%.60q is a result, not the name of a server. Microsoft 365 adds headers "+
			"without a name, which a sender could write too. Use a mail server that adds its name.", c.Authserv)
	case len(strings.Fields(c.Authserv)) == 0 || !serverNames.MatchString(c.Authserv):
		return record.Invalid("authserv_id", "Must be the first word of the Authentication-Results headers that your "+
			"server adds, such as mx.example.org. If your servers have several names, put spaces between them.")
	case len(token) > maxToken || strings.ContainsFunc(token, unicode.IsControl):
		return record.Invalid("token", "Must be the password of the mailbox, at most %d bytes.", maxToken)
	}
	return nil
}

// serverNames matches names of servers in Authentication-Results headers.
var serverNames = regexp.MustCompile(`^[!#-:<>-~ ]+$`)

// Trusts reports whether a name in an Authentication-Results header is that of a receiving server.
func (c Channel) Trusts(server string) bool {
	is := func(name string) bool { return strings.EqualFold(name, server) }
	return slices.ContainsFunc(strings.Fields(c.Authserv), is)
}

// serverURL reports whether a text is a URL of a server with one of the schemes, without a password.
func serverURL(text string, schemes ...string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.RawQuery != "" || !slices.Contains(schemes, u.Scheme) {
		return false
	}
	_, password := u.User.Password()
	return !password
}

var mailAddress = regexp.MustCompile(`^[a-z0-9!#$%&'*+/=?^_{|}~.-]{1,64}@[a-z0-9-]+(\.[a-z0-9-]+)+$`)

// MailAddress returns an address in lower case, which identifies a mailbox. valid is false for what is none, and for
// addresses with quotes or characters outside ASCII.
func MailAddress(text string) (address string, valid bool) {
	address = strings.ToLower(text)
	return address, len(address) <= 254 && mailAddress.MatchString(address)
}

// deletePairings deletes the pairings of a deleted channel. Its conversations remain as chats.
func deletePairings(ctx context.Context, h *record.Records, c record.Delete) (seq uint64, err error) {
	all, err := record.All[Pairing](ctx, h, Pairings)
	for _, p := range all {
		if err == nil && p.Value.Channel == c.Record {
			seq, err = h.Delete(ctx, record.Delete{Command: handlers.Command{Actor: c.Actor}, Collection: Pairings, Record: p.ID,
				Trusted: true})
		}
	}
	return seq, err
}

// Revoke ends a pairing. The sender is then unpaired, and gets no more answers.
func (h *Channels) Revoke(ctx context.Context, c record.Delete) (uint64, error) {
	c.Collection = Pairings
	return h.Records.Delete(ctx, c)
}

// pairing returns the pairing of a sender in a conversation, and its account. found is false if there is none, if it
// has expired, or if its account is disabled, deleted or an agent.
func (h *Channels) pairing(ctx context.Context, in Incoming) (p Pairing, who account.Account, found bool, err error) {
	all, err := h.Pairings(ctx)
	if err != nil {
		return p, who, false, err
	}
	i := slices.IndexFunc(all, func(p Pairing) bool {
		return p.Channel == in.Channel.ID && p.Address == in.Address && p.Place == in.Place && !p.expired()
	})
	if i < 0 {
		return p, who, false, nil
	}
	who, found, err = h.person(ctx, all[i].User)
	return all[i], who, found, err
}

func (p Pairing) expired() bool {
	expires, err := time.Parse(events.TimeFormat, p.Expires)
	return err != nil || !time.Now().Before(expires)
}

// person returns an account with which a person may log in.
func (h *Channels) person(ctx context.Context, id string) (account.Account, bool, error) {
	all, err := h.Accounts.List(ctx)
	i := slices.IndexFunc(all, func(a account.Account) bool {
		return a.ID == id && !a.Disabled && a.Role != account.Agent
	})
	if err != nil || i < 0 {
		return account.Account{}, false, err
	}
	return all[i], true, nil
}
