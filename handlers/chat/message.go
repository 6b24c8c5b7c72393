package chat

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// SubmitMessage adds a person's message to the queue of a chat. Message is an id of the caller's choice, or empty. A
// second message with the same id and content has no effect.
type SubmitMessage struct {
	handlers.Command
	Chat    string         `json:"chat"`
	Message string         `json:"message,omitempty"`
	Parts   []events.Part  `json:"parts"`
	Resumes string         `json:"-"` // see events.MessageSubmitted
	Sender  string         `json:"-"` // chat whose assistant wrote it; empty for a person
	Origin  *events.Origin `json:"-"` // of a message from a messenger

	Schedule string `json:"-"` // the schedule that starts a run with it

	Delivery string `json:"delivery,omitempty"` // events.DeliveryQueue, events.DeliverySteer, or empty for the first
}

// MaxMessage is the largest message, in bytes of its JSON.
const MaxMessage = 1 << 20

// SubmitMessage returns the id of the message, and the sequence of its event.
func (h *Chats) SubmitMessage(ctx context.Context, c SubmitMessage) (message string, seq uint64, err error) {
	c.Message = cmp.Or(c.Message, events.NewID())
	if _, err := events.ParseID(c.Message); err != nil {
		return "", 0, handlers.RefuseField(handlers.Invalid, "id", "message: %v", err)
	}
	if err := CheckParts(c.Parts); err != nil {
		return "", 0, err
	}
	if err := checkDelivery(c.Delivery); err != nil {
		return "", 0, err
	}
	d := events.MessageSubmitted{Message: c.Message, Parts: c.Parts, Resumes: c.Resumes, Sender: c.Sender,
		Origin: c.Origin, Schedule: c.Schedule}
	if c.Delivery == events.DeliverySteer {
		d.Delivery = c.Delivery
	}
	if err := handlers.CheckChat(c.Chat); err != nil {
		return "", 0, err
	}
	seq, err = h.messagesOf(ctx, c.Chat).ExecuteOne(ctx, h.Log, c.Chat, c.Command,
		func(s *messageState) (events.Data, uint64, error) {
			if err := s.Missing(c.Chat); err != nil {
				return nil, 0, err
			}
			earlier := s.messages[c.Message]
			switch {
			case earlier == nil:
				return d, 0, nil
			case earlier.state == withdrawn:
				return nil, 0, handlers.RefuseField(handlers.Conflict, "id", "message %s was deleted", c.Message)
			case earlier.parts != hashOf(c.Parts):
				return nil, 0, handlers.RefuseField(handlers.Conflict, "id", "message %s was submitted already with other content",
					c.Message)
			}
			return nil, earlier.submitted, nil
		})
	return c.Message, seq, err
}

// CheckParts refuses the content of a message that is empty, too large or of another form.
func CheckParts(parts []events.Part) error {
	content := false
	for i, p := range parts {
		switch p.Type {
		case "text":
			content = content || strings.TrimSpace(p.Text) != ""
		case "file":
			if err := checkFile(p); err != nil {
				return handlers.RefuseField(handlers.Invalid, "parts", "parts[%d]: %v", i, err)
			}
			content = true
		default:
			return handlers.RefuseField(handlers.Invalid, "parts", "parts[%d]: unknown type %q; want text or file", i, p.Type)
		}
		if !utf8.ValidString(p.Text + p.Filename) {
			return handlers.RefuseField(handlers.Invalid, "parts", "parts[%d]: the text is not UTF-8", i)
		}
	}
	if !content {
		return handlers.RefuseField(handlers.Invalid, "parts", "the message is empty")
	}
	if body, err := json.Marshal(parts); err != nil || len(body) > MaxMessage {
		return handlers.RefuseField(handlers.Invalid, "parts", "the message is %d bytes; the limit is %d", len(body),
			MaxMessage)
	}
	return nil
}

// checkFile accepts a file only with its content, as data:<mime>;base64,<content>. OpenCode would fetch any other URL
// itself, from the host's disk or network, and show the content to the author of the message.
func checkFile(p events.Part) error {
	if p.URL == "" || p.Mime == "" {
		return errors.New("a file needs mime and url")
	}
	written, content, ok := strings.Cut(strings.TrimPrefix(p.URL, "data:"), ";base64,")
	if !ok || !strings.HasPrefix(p.URL, "data:") {
		return errors.New("url: want data:<mime>;base64,<content>; a file is sent with its content, not by its place")
	}
	is, _, err := mime.ParseMediaType(written)
	want, _, invalid := mime.ParseMediaType(p.Mime)
	if err != nil || invalid != nil || is != want || !strings.Contains(is, "/") {
		return fmt.Errorf("mime: the url is of type %.100q, the file of type %.100q; want the same, such as text/plain",
			written, p.Mime)
	}
	// The decoder skips line breaks, which no URL has.
	if _, err := base64.StdEncoding.DecodeString(content); err != nil || strings.ContainsAny(content, "\r\n") {
		return errors.New("url: the content is not base64 with padding")
	}
	return nil
}
