package chat

import (
	"cmp"
	"context"
	"crypto/sha256"
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

// SubmitMessage hands a person's message to the assistant. Message is its id, made by the caller or empty: submitting
// the same message under the same id again is submitting it once.
type SubmitMessage struct {
	handlers.Command
	Chat    string        `json:"chat"`
	Message string        `json:"message,omitempty"`
	Parts   []events.Part `json:"parts"`
	Resumes string        `json:"-"` // the interrupted ask whose approval is carried out by it
}

// MaxMessage is the largest message, in bytes of its JSON.
const MaxMessage = 1 << 20

type messageState struct {
	handlers.ChatState
	submitted map[string]submitted
}

// submitted is kept without the content, which only has to be compared.
type submitted struct {
	seq   uint64
	parts [sha256.Size]byte // of their JSON
}

func hashOf(parts []events.Part) [sha256.Size]byte {
	b, err := json.Marshal(parts)
	if err != nil {
		panic(err) // parts are texts
	}
	return sha256.Sum256(b)
}

func (s *messageState) Apply(e events.Event) {
	s.ChatState.Apply(e)
	if d, err := events.Decode(e); err == nil {
		if m, ok := d.(events.MessageSubmitted); ok {
			s.submitted[m.Message] = submitted{e.Seq, hashOf(m.Parts)}
		}
	}
}

func (h *Chats) SubmitMessage(ctx context.Context, c SubmitMessage) (message string, seq uint64, err error) {
	c.Message = cmp.Or(c.Message, events.NewID())
	if _, err := events.ParseID(c.Message); err != nil {
		return "", 0, handlers.RefuseField(handlers.Invalid, "id", "message: %v", err)
	}
	if err := checkParts(c.Parts); err != nil {
		return "", 0, err
	}
	d := events.MessageSubmitted{Message: c.Message, Parts: c.Parts, Resumes: c.Resumes}
	if err := handlers.CheckChat(c.Chat); err != nil {
		return "", 0, err
	}
	f := h.messages.Get(ctx, c.Chat, func() *handlers.Fold[*messageState] {
		return handlers.NewFold(&messageState{submitted: map[string]submitted{}}, events.ChatSubject(c.Chat, d.Kind()), handlers.ChatFilter(c.Chat))
	})
	seq, err = f.CarryOutOne(ctx, h.Log, c.Chat, c.Command, func(s *messageState) (events.Data, uint64, error) {
		if err := s.Missing(c.Chat); err != nil {
			return nil, 0, err
		}
		if earlier, ok := s.submitted[c.Message]; ok {
			if earlier.parts != hashOf(c.Parts) {
				return nil, 0, handlers.RefuseField(handlers.Conflict, "id", "message %s was submitted already with other content", c.Message)
			}
			return nil, earlier.seq, nil
		}
		return d, 0, nil
	})
	return c.Message, seq, err
}

func checkParts(parts []events.Part) error {
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
		return handlers.RefuseField(handlers.Invalid, "parts", "the message is %d bytes; the limit is %d", len(body), MaxMessage)
	}
	return nil
}

// checkFile takes a file only with its content in it, as data:<mime>;base64,<content>: a file of any other URL OpenCode
// would fetch itself, from the host's disk or from its network, and show to whoever wrote the message.
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
		return fmt.Errorf("mime: the url is of type %.100q, the file of type %.100q; want the same, such as text/plain", written, p.Mime)
	}
	// The decoder skips line breaks, which no URL has.
	if _, err := base64.StdEncoding.DecodeString(content); err != nil || strings.ContainsAny(content, "\r\n") {
		return errors.New("url: the content is not base64 with padding")
	}
	return nil
}
