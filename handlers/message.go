package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
)

// SubmitMessage hands a person's message to the assistant. Message is its id, made by the caller or empty: submitting
// the same message under the same id again is submitting it once.
type SubmitMessage struct {
	Command
	Chat    string        `json:"chat"`
	Message string        `json:"message,omitempty"`
	Parts   []events.Part `json:"parts"`
	Resumes string        `json:"-"` // the interrupted ask whose approval is carried out by it
}

// MaxMessage is the largest message, in bytes of its JSON.
const MaxMessage = 1 << 20

type messageState struct {
	chatState
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

func (s *messageState) apply(e events.Event) {
	s.chatState.apply(e)
	if d, err := events.Decode(e); err == nil {
		if m, ok := d.(events.MessageSubmitted); ok {
			s.submitted[m.Message] = submitted{e.Seq, hashOf(m.Parts)}
		}
	}
}

// SubmitMessage carries out the command.
func (h *Handlers) SubmitMessage(ctx context.Context, c SubmitMessage) (message string, seq uint64, err error) {
	if c.Message == "" {
		c.Message = events.NewID()
	}
	if _, err := events.ParseID(c.Message); err != nil {
		return "", 0, refuse(Invalid, "message: %v", err)
	}
	if err := checkParts(c.Parts); err != nil {
		return "", 0, err
	}
	d := events.MessageSubmitted{Message: c.Message, Parts: c.Parts, Resumes: c.Resumes}
	if _, err := events.ParseID(c.Chat); err != nil {
		return "", 0, refuse(Invalid, "chat: %v", err)
	}
	f := h.messages.get(ctx, c.Chat, func() *folded {
		return fold(&messageState{submitted: map[string]submitted{}}, []string{events.ChatSubject(c.Chat, d.Kind()), chatFilter(c.Chat)})
	})
	s := f.state.(*messageState)
	seq, err = h.handleOn(ctx, c.Chat, c.Command, f, func() (events.Data, uint64, error) {
		if err := s.missing(c.Chat); err != nil {
			return nil, 0, err
		}
		if earlier, ok := s.submitted[c.Message]; ok {
			if earlier.parts != hashOf(c.Parts) {
				return nil, 0, refuse(Conflict, "message %s was submitted already with other content", c.Message)
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
			if p.URL == "" || p.Mime == "" {
				return refuse(Invalid, "parts[%d]: a file needs mime and url", i)
			}
			content = true
		default:
			return refuse(Invalid, "parts[%d]: unknown type %q; want text or file", i, p.Type)
		}
		if !utf8.ValidString(p.Text) {
			return refuse(Invalid, "parts[%d]: the text is not UTF-8", i)
		}
	}
	if !content {
		return refuse(Invalid, "the message is empty")
	}
	if body, err := json.Marshal(parts); err != nil || len(body) > MaxMessage {
		return refuse(Invalid, "the message is %d bytes; the limit is %d", len(body), MaxMessage)
	}
	return nil
}
