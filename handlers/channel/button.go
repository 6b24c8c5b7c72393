package channel

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
)

// Button is the effect of a button of a message, which can be used once: it decides a permission request, or answers a
// question. SECRETS holds it under the SHA-256 of its token.
type Button struct {
	Chat       string          `json:"chat"` // of the request or the question
	Channel    string          `json:"channel"`
	Place      string          `json:"place"`
	Permission string          `json:"permission,omitempty"`
	Decision   events.Decision `json:"decision,omitempty"`
	Request    string          `json:"request,omitempty"` // hash of the request that is shown
	Files      string          `json:"files,omitempty"`   // hash of its files
	Question   string          `json:"question,omitempty"`
	Index      int             `json:"index,omitempty"`
	Answer     string          `json:"answer,omitempty"`
	Expires    time.Time       `json:"expires"`
	UsedBy     string          `json:"used_by,omitempty"` // the update that used it
}

const (
	buttonPrefix = "btn"
	buttonLife   = 24 * time.Hour
	buttonLength = 16 // characters of 5 bits
	maxButton    = 64 // characters of a token
)

// CreateButton stores a button and returns its token.
func (h *Channels) CreateButton(ctx context.Context, b Button) (token string, err error) {
	token, b.Expires = rand.Text()[:buttonLength], time.Now().Add(buttonLife).UTC()
	value, err := json.Marshal(b)
	if err != nil {
		return "", err
	}
	return token, h.Secrets.Create(ctx, hashed(buttonPrefix, token), value)
}

// Verbs of codes: the words before them in a message.
const (
	verbApprove = "approve"
	verbDeny    = "deny"
	verbAnswer  = "answer"
)

// Verb returns the word that a person writes before the token, in a messenger without buttons.
func (b Button) Verb() string {
	switch {
	case b.Question != "":
		return verbAnswer
	case b.Decision == events.Authorized:
		return verbApprove
	}
	return verbDeny
}

// codeOfButton returns the verb and the token in the first line of a text, and the text after that line.
func codeOfButton(text string) (verb, token, rest string, found bool) {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	words := strings.Fields(first)
	if len(words) != 2 {
		return "", "", "", false
	}
	verb, token = strings.ToLower(words[0]), strings.ToUpper(words[1])
	found = slices.Contains([]string{verbApprove, verbDeny, verbAnswer}, verb) && isCode(token, buttonLength)
	return verb, token, strings.TrimSpace(rest), found
}

// pressed presses the button whose code is in the first line of a message, and queues what is said about it. It
// reports whether the message had no more than the code.
func (h *Channels) pressed(ctx context.Context, in *Incoming, id string) (all bool, err error) {
	verb, token, rest, found := codeOfButton(in.Text)
	if !found {
		return false, nil
	}
	in.verb = verb
	said, err := h.Press(ctx, *in, token)
	if err == nil && said != "" {
		err = h.notify(ctx, id, *in, "pressed", said)
	}
	in.Text = rest
	return rest == "" && in.Files == nil, err
}

// Press carries out the effect of a button, in the name of the account with which the sender is paired. It returns a
// sentence for the sender, "" for a stranger. An error means that another try may succeed.
func (h *Channels) Press(ctx context.Context, in Incoming, token string) (said string, err error) {
	p, who, paired, err := h.pairing(ctx, in)
	if err != nil || !paired || len(token) > maxButton {
		return "", err
	}
	key := hashed(buttonPrefix, token)
	old, found, err := h.Secrets.Get(ctx, key)
	what := "button"
	if in.verb != "" {
		what = "code"
	}
	var b Button
	switch {
	case err != nil:
		return "", err
	case !found || json.Unmarshal(old, &b) != nil || b.Channel != in.Channel.ID || b.Place != in.Place:
		return "PocketCoder does not know this " + what + " any more.", nil
	case in.verb != "" && in.verb != b.Verb():
		return "This code is not one to " + in.verb + ". Nothing was decided.", nil
	case b.UsedBy != "" && b.UsedBy != in.Update:
		return "This " + what + " was used already.", nil
	case b.UsedBy == "" && !time.Now().Before(b.Expires):
		return "This " + what + " has expired. Decide in the app.", nil
	}
	allowed, err := h.mayDecide(ctx, b.Chat, who)
	if err != nil || !allowed {
		return "Your account may not decide this.", err
	}
	if b.UsedBy == "" {
		b.UsedBy = in.Update
		value, err := json.Marshal(b)
		if err != nil {
			return "", err
		}
		if swapped, err := h.Secrets.Swap(ctx, key, old, value); err != nil || !swapped {
			return "This " + what + " was used already.", err
		}
	}
	said, err = h.press(ctx, b, who, handlers.Command{ID: events.ChannelID("press", token), Actor: events.UserActor(p.User)},
		in.Channel.Name)
	if code := handlers.CodeOf(err); code != "" && code != handlers.Unavailable {
		return err.Error(), nil
	}
	return said, err
}

func (h *Channels) press(ctx context.Context, b Button, who account.Account, by handlers.Command,
	channel string) (string, error) {
	if b.Question != "" {
		_, err := h.Chats.AnswerQuestion(ctx, chat.AnswerQuestion{Command: by, Chat: b.Chat, Question: b.Question,
			Index: b.Index, Answers: []string{b.Answer}})
		return "Answered: " + b.Answer, err
	}
	_, err := h.Decide(ctx, permission.Decide{
		Command: by, Chat: b.Chat, Permission: b.Permission, Decision: b.Decision, ShownRequest: permission.ShownRequest{Request: b.Request, Files: b.Files},
		Client: events.Client{Device: channel}, Admin: who.Role == account.Admin,
	})
	if b.Decision == events.Authorized {
		return "Approved.", err
	}
	return "Denied.", err
}

// mayDecide reports whether an account decides in a chat: it owns the chat, or the chat above a delegate, or is an
// administrator.
func (h *Channels) mayDecide(ctx context.Context, chat string, who account.Account) (bool, error) {
	state, err := h.state(ctx, chat)
	if err != nil || state.Missing(chat) != nil {
		return false, err
	}
	return who.Role == account.Admin || state.Owner == who.ID, nil
}

// Sweep deletes expired buttons and codes.
func (h *Channels) Sweep(ctx context.Context) error {
	for _, prefix := range []string{buttonPrefix, codePrefix} {
		keys, err := h.Secrets.Keys(ctx, prefix)
		if err != nil {
			return err
		}
		for _, key := range keys {
			raw, found, err := h.Secrets.Get(ctx, key)
			var one struct{ Expires time.Time }
			if err != nil {
				return err
			}
			if found && (json.Unmarshal(raw, &one) != nil || time.Since(one.Expires) > codeLife) {
				if err := h.Secrets.Delete(ctx, key); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
