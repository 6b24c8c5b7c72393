// Package channel carries out the commands on channels: messengers through which people talk to the assistant. It pairs
// people with accounts, receives their messages, carries out the decisions of their buttons, and records the messages
// that are sent.
//
// Promises: the platform's id identifies a sender, never a name or the text of a message. Nothing from an unpaired
// sender is answered or stored. An update of a platform that comes twice has one effect. A pairing code and a
// button work once. A button decides the request that was shown with it, for a sender who is paired with an account
// that may decide.
//
// It must not know the protocol of a platform, or HTTP.
package channel

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
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
	hooks sync.Mutex // held while a webhook is saved, so that each counts those before
}

// Commands are the commands that can be sent over NATS.
func (h *Channels) Commands() handlers.Commands {
	return handlers.Commands{
		"channel.save": handlers.CommandOf(func(c *record.Save, actor string) { c.Actor, c.Role = actor, account.Admin },
			handlers.Created(h.Save)),
		"channel.delete": handlers.CommandOf(func(c *record.Delete, actor string) { c.Actor = actor },
			handlers.SeqOnly(h.Delete)),
		"channel.list":   handlers.QueryOf(func(ctx context.Context, _ struct{}) ([]Channel, error) { return h.List(ctx) }),
		"pairing.list":   handlers.QueryOf(func(ctx context.Context, _ struct{}) ([]Pairing, error) { return h.Pairings(ctx) }),
		"pairing.code":   handlers.QueryOf(h.CreateCode),
		"target.list":    handlers.QueryOf(func(ctx context.Context, _ struct{}) ([]Target, error) { return h.ListTargets(ctx) }),
		"webhook.token":  handlers.CommandOf(func(c *RenewToken, actor string) { c.Actor = actor }, h.renew),
		"target.replay":  handlers.CommandOf(func(c *Replay, actor string) { c.Actor = actor }, handlers.SeqOnly(h.Replay)),
		"pairing.revoke": handlers.CommandOf(func(c *record.Delete, actor string) { c.Actor = actor }, handlers.SeqOnly(h.Revoke)),
	}
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

// Save saves a channel. The field token is stored among the secrets, and never in the record. The record says when it
// changed, so that a running connection learns of it.
func (h *Channels) Save(ctx context.Context, c record.Save) (id string, seq uint64, err error) {
	set := maps.Clone(c.Set)
	var token string
	if raw, given := set["token"]; given && json.Unmarshal(raw, &token) != nil {
		return "", 0, invalid("token", "Must be a text.")
	}
	delete(set, "token")
	if c.New {
		c.Record = cmp.Or(c.Record, events.NewID())
	}
	if err := h.check(ctx, c, token); err != nil {
		return "", 0, err
	}
	c.Collection, c.Set = Collection, set
	if id, seq, err = h.save(ctx, c, tokenKey(c.Record), token); err != nil || token == "" {
		return id, seq, err
	}
	c.ID, c.Record, c.New, c.Trusted = "", id, false, true
	c.Set = record.Fields(map[string]any{"token_changed": record.FormatTime(time.Now())})
	return h.Records.Save(ctx, c)
}

// save saves a record, and stores its secret, "" for none, under its key.
func (h *Channels) save(ctx context.Context, c record.Save, key, text string) (id string, seq uint64, err error) {
	if text == "" {
		return h.Records.Save(ctx, c)
	}
	err = h.store(ctx, key, text, func() error {
		id, seq, err = h.Records.Save(ctx, c)
		return err
	})
	return id, seq, err
}

// store stores a secret once save has saved what it belongs to. It redacts the secret first, and refuses it if the
// number of redacted secrets is used up. The secret before stays redacted until the new one is stored. If that fails,
// both are redacted, because either may be the stored one.
func (h *Channels) store(ctx context.Context, key, text string, save func() error) error {
	before, _, err := h.Secrets.Get(ctx, key)
	if err != nil {
		return err
	}
	if h.conceal(key, text, string(before)) != nil { // the budget may have room for one of them
		err = h.conceal(key, text)
	}
	if err == nil {
		err = save()
	}
	if err != nil {
		_ = h.conceal(key, string(before))
		return err
	}
	if err = h.Secrets.Put(ctx, key, []byte(text)); err == nil {
		err = h.conceal(key, text)
	}
	return err
}

// sources are the sources of the secrets of channels, by the first token of their keys.
var sources = map[string]secret.Source{channelPrefix: secret.Channels, targetPrefix: secret.Targets,
	webhookPrefix: secret.Webhooks}

const (
	channelPrefix = "channel"
	targetPrefix  = "target"
	webhookPrefix = "webhook"
)

// collections are the collections of the records that secrets belong to, by the first token of their keys.
var collections = map[string]string{channelPrefix: Collection, targetPrefix: Targets, webhookPrefix: Webhooks}

// conceal redacts the secrets of a key in place of those before; empty texts end the redaction.
func (h *Channels) conceal(key string, texts ...string) error {
	prefix, _, _ := strings.Cut(key, ".")
	if h.Log.Conceal(sources[prefix], key, texts...) > 0 {
		return handlers.RefuseFull(sources[prefix], sources[prefix].Budget())
	}
	return nil
}

// deleteSecret deletes the secret of a record, which is then no longer redacted.
func (h *Channels) deleteSecret(ctx context.Context, key string) error {
	err := h.Secrets.Delete(ctx, key)
	if err == nil {
		err = h.conceal(key)
	}
	return err
}

// Follow redacts the stored secrets of channels, webhooks and targets, and those that any process stores later, until
// ctx ends. It ends the redaction of those that are deleted, and deletes those whose record was deleted.
func (h *Channels) Follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := h.clean(ctx); err != nil {
		return err
	}
	ended := make(chan error, len(sources))
	for prefix := range sources {
		go func() {
			defer cancel()
			ended <- h.Secrets.Watch(ctx, prefix, func(key string, value []byte) error {
				if key != "" {
					_ = h.conceal(key, string(value)) // if it does not fit, the health of the log says so
				}
				return nil
			})
		}()
	}
	var first error
	for range sources {
		first = cmp.Or(first, <-ended)
	}
	return first
}

// clean deletes the secrets of deleted records. Such a secret is left if the process ended, or lost the log, between
// the deletions of the two. The log must have the deletion, because a replica may not have the record of a new secret.
func (h *Channels) clean(ctx context.Context) error {
	for prefix, collection := range collections {
		keys, err := h.Secrets.Keys(ctx, prefix)
		if err != nil {
			return err
		}
		for _, key := range keys {
			last := ""
			records := events.ConfigSubject(collection, strings.TrimPrefix(key, prefix+"."), "*")
			if _, err := h.Log.Fold(ctx, records, 0, func(e events.Event) error {
				last = e.Subject.Kind
				return nil
			}); err != nil {
				return err
			}
			if last == (events.Deleted{}).Kind() {
				if err := h.deleteSecret(ctx, key); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// check refuses a change after which the channel would not be valid.
func (h *Channels) check(ctx context.Context, c record.Save, token string) error {
	all, err := h.List(ctx)
	if err != nil {
		return err
	}
	var one Channel
	if i := slices.IndexFunc(all, func(old Channel) bool { return old.ID == c.Record }); i >= 0 && !c.New {
		one = all[i]
	} else if !c.New {
		return nil // the record does not exist, which Save refuses
	}
	body, err := json.Marshal(c.Set)
	if err != nil {
		return err
	}
	_ = json.Unmarshal(body, &one) // a value of another type is ""
	switch {
	case len(one.Trigger) > maxTrigger || !utf8.ValidString(one.Trigger):
		return invalid("trigger", "Must be at most %d bytes.", maxTrigger)
	case one.Kind == Telegram:
		return one.checkBot(token)
	case one.Kind == Email:
		return one.checkMailbox(token)
	}
	return invalid("kind", "Must be %s or %s.", Telegram, Email)
}

func (c Channel) checkBot(token string) error {
	if !serverURL(c.Server, "https", "http") && c.Server != "" || strings.Contains(c.Server, "@") {
		return invalid("server", "Must be a URL such as https://bots.example.org.")
	}
	if len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		return invalid("token", "Must be at most %d printable characters, without blanks and /.", maxToken)
	}
	return checkToken(token)
}

func (c Channel) checkMailbox(token string) error {
	_, valid := MailAddress(c.Address)
	switch {
	case !valid:
		return invalid("address", "Must be the address of the mailbox, such as assistant@example.org.")
	case !serverURL(c.Server, "imaps", "imap"):
		return invalid("server", "Must be the URL of the IMAP server, such as imaps://imap.example.org.")
	case !serverURL(c.SMTP, "smtps", "smtp"):
		return invalid("smtp", "Must be the URL of the SMTP server, such as smtps://smtp.example.org.")
	case strings.Contains(c.Authserv, "="):
		return invalid("authserv_id", "%.60q is a result, not the name of a server. Microsoft 365 adds headers without a "+
			"name, which a sender could write too. Use a mail server that adds its name.", c.Authserv)
	case len(strings.Fields(c.Authserv)) == 0 || !serverNames.MatchString(c.Authserv):
		return invalid("authserv_id", "Must be the first word of the Authentication-Results headers that your server adds, "+
			"such as mx.example.org. If your servers have several names, put spaces between them.")
	case len(token) > maxToken || strings.ContainsFunc(token, unicode.IsControl):
		return invalid("token", "Must be the password of the mailbox, at most %d bytes.", maxToken)
	}
	return checkToken(token)
}

// checkToken refuses a token that cannot be redacted, except an empty one, which leaves the stored token.
func checkToken(token string) error {
	if token == "" {
		return nil
	}
	return handlers.RefuseWeak("token", secret.Check(token))
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

func invalid(field, format string, args ...any) error {
	return handlers.RefuseField(handlers.Invalid, field, format, args...)
}

func tokenKey(id string) string { return channelPrefix + "." + id }

// Token returns the token of a channel, "" if there is none. From then on it is redacted in events.
func (h *Channels) Token(ctx context.Context, id string) (string, error) {
	token, _, err := h.Secrets.Get(ctx, tokenKey(id))
	if err == nil {
		_ = h.conceal(tokenKey(id), string(token)) // if it does not fit, the health of the log says so
	}
	return string(token), err
}

// Delete deletes a channel, its token and its pairings. Its conversations remain as chats.
func (h *Channels) Delete(ctx context.Context, c record.Delete) (seq uint64, err error) {
	c.Collection = Collection
	if seq, err = h.Records.Delete(ctx, c); err != nil {
		return 0, err
	}
	all, err := h.Pairings(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if p.Channel == c.Record {
			if seq, err = h.Records.Delete(ctx, record.Delete{Command: handlers.Command{Actor: c.Actor}, Collection: Pairings,
				Record: p.ID}); err != nil {
				return 0, err
			}
		}
	}
	return seq, h.deleteSecret(ctx, tokenKey(c.Record))
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
