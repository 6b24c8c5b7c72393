package handlers

import (
	"context"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
)

// CreateChat opens a chat. Chat is its id, made by the caller or empty.
type CreateChat struct {
	Command
	Chat   string `json:"chat,omitempty"`
	Title  string `json:"title,omitempty"`
	User   string `json:"user,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Engine string `json:"engine,omitempty"`
}

// maxTitle is the longest title of a chat, in bytes.
const maxTitle = 500

// DefaultTitle is that of a chat nobody named.
const DefaultTitle = "New chat"

// DefaultEngine is the OpenCode of a single-node installation.
const DefaultEngine = "local"

type chatState struct {
	created uint64
	as      events.ChatCreated
}

func (s *chatState) apply(e events.Event) {
	if d, err := events.Decode(e); err == nil {
		if c, ok := d.(events.ChatCreated); ok {
			s.created, s.as = e.Seq, c
		}
	}
}

// CreateChat carries out the command. A chat that exists already with the same title and owner is not created again.
func (h *Handlers) CreateChat(ctx context.Context, c CreateChat) (chat string, seq uint64, err error) {
	if c.Chat == "" {
		c.Chat = events.NewID()
	}
	if c.Title = strings.TrimSpace(c.Title); c.Title == "" {
		c.Title = DefaultTitle
	}
	if c.Engine == "" {
		c.Engine = DefaultEngine
	}
	if len(c.Title) > maxTitle || !utf8.ValidString(c.Title) {
		return "", 0, refuse(Invalid, "title: want at most %d bytes of UTF-8, got %d", maxTitle, len(c.Title))
	}
	if _, err := events.ParseID(c.Engine); err != nil {
		return "", 0, refuse(Invalid, "engine: %v", err)
	}
	created := events.ChatCreated{Title: c.Title, User: c.User, Engine: c.Engine, Agent: c.Agent}
	s := &chatState{}
	seq, err = h.handle(ctx, c.Chat, c.Command, s, []string{events.ChatSubject(c.Chat, created.Kind())}, func() (events.Data, uint64, error) {
		if s.created != 0 && s.as != created {
			return nil, 0, refuse(Conflict, "chat %s exists already", c.Chat)
		}
		if s.created != 0 {
			return nil, s.created, nil
		}
		return created, 0, nil
	})
	return c.Chat, seq, err
}
