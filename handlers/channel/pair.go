package channel

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/record"
)

// NewCode requests a code with which a person pairs an account with a messenger.
type NewCode struct {
	Channel string `json:"channel"` // id or name
	User    string `json:"user"`    // id of the account
}

// Code is a pairing code. The person sends it to the channel from the conversation to pair.
type Code struct {
	Code    string    `json:"code"`
	Expires time.Time `json:"expires"`
}

// pairingCode is the effect of a code, which can be used once. SECRETS holds it under the SHA-256 of the code.
type pairingCode struct {
	Channel string    `json:"channel"`
	User    string    `json:"user"`
	Expires time.Time `json:"expires"`
	UsedBy  string    `json:"used_by,omitempty"` // the update that used it
}

const (
	codeLife       = 10 * time.Minute // OWASP ASVS 5.0, 6.5
	codeLength     = 12               // characters of 5 bits
	codePrefix     = "pair"
	pairingLife    = 90 * 24 * time.Hour
	maxGuesses     = 5 // wrong codes of a sender in guessWindow; a code has 60 random bits
	guessWindow    = 10 * time.Minute
	maxNameOfPeer  = 100 // bytes
	otherOwnerText = "This conversation belongs to another account, so the code was not used."
)

func hashed(prefix, token string) string {
	sum := sha256.Sum256([]byte(token))
	return prefix + "." + hex.EncodeToString(sum[:])
}

// CreateCode creates a code that can be used once, within ten minutes.
func (h *Channels) CreateCode(ctx context.Context, c NewCode) (code Code, err error) {
	all, err := h.List(ctx)
	if err != nil {
		return code, err
	}
	found := false
	for _, one := range all {
		if one.ID == c.Channel || one.Name == c.Channel {
			found, c.Channel = true, one.ID
		}
	}
	if !found {
		return code, handlers.RefuseField(handlers.NotFound, "channel", "There is no channel %q.", c.Channel)
	}
	if _, person, err := h.person(ctx, c.User); err != nil || !person {
		if err == nil {
			err = record.Invalid("user", "Only an enabled account of a person can be paired.")
		}
		return code, err
	}
	code = Code{Code: rand.Text()[:codeLength], Expires: time.Now().Add(codeLife).UTC()}
	value, err := json.Marshal(pairingCode{Channel: c.Channel, User: c.User, Expires: code.Expires})
	if err != nil {
		return code, err
	}
	return code, h.Secrets.Create(ctx, hashed(codePrefix, code.Code), value)
}

// codeIn returns the pairing code in the first line of a text: "/start CODE", "/pair CODE", or the code alone.
func codeIn(text string) (code string, found bool) {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	words := strings.Fields(first)
	if len(words) == 2 && (command(words[0]) == "/start" || command(words[0]) == "/pair") {
		words = words[1:]
	}
	if len(words) != 1 {
		return "", false
	}
	code = strings.ToUpper(words[0])
	return code, isCode(code, codeLength)
}

func isCode(text string, length int) bool {
	return len(text) == length && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// command returns a command without the name of the bot, which Telegram adds in groups: /new@example_bot.
func command(word string) string {
	name, _, _ := strings.Cut(word, "@")
	return strings.ToLower(name)
}

// commandIn returns the name of the command that a text is, "" if it is a message.
func commandIn(text string) string {
	name := command(strings.TrimSpace(text))
	if name == "/start" { // which Telegram sends for a person who opens the bot again
		return chat.SlashHelp
	}
	c, argument, _ := chat.FindSlashCommand(chat.Messenger, name)
	if argument != "" {
		return ""
	}
	return c.Name
}

func pairedNotice() string {
	notice := "You are paired. Write a message to talk to the assistant, or a command:"
	for _, c := range chat.SlashCommands(chat.Messenger) {
		notice += "\n" + c.Usage() + " – " + c.About
	}
	return notice
}

// redeem pairs the sender of a code. It reports whether the code was valid. An invalid code has no
// effect.
func (h *Channels) redeem(ctx context.Context, in Incoming, code string) (bool, error) {
	h.pair.Lock()
	defer h.pair.Unlock()
	sender := in.Channel.ID + " " + in.Address
	if h.wrong.add(sender, 0, guessWindow) >= maxGuesses {
		return false, nil
	}
	key := hashed(codePrefix, code)
	old, found, err := h.Secrets.Get(ctx, key)
	if err != nil {
		return false, err
	}
	var c pairingCode
	if !found || json.Unmarshal(old, &c) != nil || c.Channel != in.Channel.ID {
		h.wrong.add(sender, 1, guessWindow)
		return false, nil
	}
	if c.UsedBy != "" && c.UsedBy != in.Update || c.UsedBy == "" && !time.Now().Before(c.Expires) {
		return false, nil
	}
	who, person, err := h.person(ctx, c.User)
	if err != nil || !person {
		return false, err
	}
	if c.UsedBy == "" {
		c.UsedBy = in.Update
		value, err := json.Marshal(c)
		if err != nil {
			return false, err
		}
		if swapped, err := h.Secrets.Swap(ctx, key, old, value); err != nil || !swapped {
			return false, err
		}
	}
	return true, h.pairWith(ctx, in, who)
}

// pairWith stores the pairing of a sender with an account, and begins the chat of the conversation. It replaces an
// earlier pairing, so that answers from before are not sent.
func (h *Channels) pairWith(ctx context.Context, in Incoming, who account.Account) error {
	actor := events.UserActor(who.ID)
	id, taken, err := h.chatOf(ctx, in, who)
	if err != nil {
		return err
	}
	if !taken {
		return h.notify(ctx, id, in, "refused", otherOwnerText)
	}
	all, err := h.Pairings(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Channel == in.Channel.ID && p.Address == in.Address && p.Place == in.Place {
			if _, err := h.Revoke(ctx, record.Delete{Command: handlers.Command{Actor: actor}, Record: p.ID}); err != nil {
				return err
			}
		}
	}
	set := record.Fields(map[string]any{
		"channel": in.Channel.ID, "address": in.Address, "place": in.Place, "user": who.ID, "name": shorten(in.Sender, maxNameOfPeer),
		"group": in.Group, "expires_at": events.FormatTime(time.Now().Add(pairingLife)),
	})
	_, seq, err := h.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: actor}, Collection: Pairings, Set: set,
		New: true, Trusted: true})
	if err == nil {
		err = h.AwaitReadModels(ctx, seq)
	}
	if err != nil {
		return err
	}
	return h.notify(ctx, id, in, "paired", pairedNotice())
}

func shorten(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// counter counts something within a time, by sender. The counts end with the process: a code is too long to be guessed
// between restarts.
type counter struct {
	mu    sync.Mutex
	since time.Time
	by    map[string]int
}

// add adds n for a sender, and returns how many there are within the time.
func (c *counter) add(sender string, n int, within time.Duration) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.since) > within {
		c.since, c.by = time.Now(), map[string]int{}
	}
	if n > 0 {
		c.by[sender] += n
	}
	return c.by[sender]
}
