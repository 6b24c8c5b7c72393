package chat

import (
	"cmp"
	"context"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// Fork creates a chat with the owner, project, engine and agent of another, and with its history before a message.
type Fork struct {
	handlers.Command
	Chat    string `json:"chat"`
	Message string `json:"message,omitempty"` // OpenCode's msg_… id; empty for the whole chat
	Into    string `json:"into,omitempty"`    // id of the new chat, made by the caller or empty
	Title   string `json:"title,omitempty"`   // of the new chat; empty for that of this one, with events.ForkSuffix
}

type forkState struct {
	source     string
	from, into chatState
	done       map[string]forkRecord // by new chat
}

type forkRecord struct {
	seq     uint64
	cause   string
	message string
}

func (s *forkState) Apply(e events.Event) {
	if e.Subject.ID != s.source {
		s.into.Apply(e)
		return
	}
	s.from.Apply(e)
	if d, err := events.Decode(e); err == nil {
		if f, ok := d.(events.ForkRequested); ok {
			s.done[f.Chat] = forkRecord{e.Seq, e.Cause, f.Message}
		}
	}
}

// Fork creates the chat, and requests that OpenCode copies the history.
func (h *Chats) Fork(ctx context.Context, c Fork) (chat string, seq uint64, err error) {
	c.Into = cmp.Or(c.Into, events.NewID())
	if err := c.check(); err != nil {
		return "", 0, err
	}
	into, forks := handlers.ChatFilter(c.Into), events.ChatSubject(c.Chat, events.ForkRequested{}.Kind())
	f := handlers.NewFold(&forkState{source: c.Chat, done: map[string]forkRecord{}}, into, forks,
		handlers.ChatFilter(c.Chat))
	chat = c.Into
	seq, err = f.Execute(ctx, h.Log, c.Command, func(s *forkState) ([]events.Event, uint64, error) {
		for into, earlier := range s.done {
			if c.ID != "" && earlier.cause == c.ID {
				chat = into
				return nil, earlier.seq, nil
			}
		}
		created, seq, err := s.fork(c)
		if err != nil || seq != 0 {
			return nil, seq, err
		}
		opened, err := events.New(c.Into, c.Actor, created)
		if err != nil {
			return nil, 0, err
		}
		request, err := events.New(c.Chat, c.Actor, events.ForkRequested{Message: c.Message, Chat: c.Into})
		return []events.Event{opened, request}, 0, err
	}, into, forks)
	if err != nil {
		return "", 0, err
	}
	return chat, seq, nil
}

func (c *Fork) check() (err error) {
	for _, id := range []struct{ name, field, value string }{{"chat", "chat", c.Chat}, {"into", "id", c.Into},
		{"message", "message", c.Message}} {
		if _, err := events.ParseID(id.value); err != nil && (id.name != "message" || id.value != "") {
			return handlers.RefuseField(handlers.Invalid, id.field, "%s: %v", id.name, err)
		}
	}
	if c.Into == c.Chat {
		return handlers.RefuseField(handlers.Conflict, "id", "chat %s exists already", c.Into)
	}
	if c.Title != "" {
		c.Title, err = checkTitle(c.Title)
	}
	return err
}

// fork returns the event of the new chat, or the sequence of the event if the fork is a repetition.
func (s *forkState) fork(c Fork) (created events.ChatCreated, seq uint64, err error) {
	if earlier, ok := s.done[c.Into]; ok && earlier.message == c.Message && s.into.Deleted == 0 {
		return created, earlier.seq, nil
	}
	if err := s.from.Missing(c.Chat); err != nil {
		return created, 0, err
	}
	if s.into.last != 0 {
		return created, 0, handlers.RefuseField(handlers.Conflict, "id", "chat %s exists already", c.Into)
	}
	from := s.from.now
	if c.Title == "" && from.title != "" {
		c.Title = forkTitle(from.title)
	}
	return events.ChatCreated{Title: c.Title, User: s.from.Owner, Engine: s.from.as.Engine, Agent: from.agent,
		Project: s.from.as.Project, Ceiling: s.from.ceiling()}, 0, nil
}

// ceiling returns the chat that limits a fork, nil for none: that of the chat, or the chat that delegated to it. A
// person who forks a chat gives the assistant no further rights.
func (s *chatState) ceiling() *events.Ceiling {
	if p := s.Parent; p != nil {
		return &events.Ceiling{Chat: p.Chat, Root: p.Root, Agent: p.Agent, Subagent: p.Subagent}
	}
	return s.Ceiling
}

func forkTitle(of string) string {
	for len(of)+len(events.ForkSuffix) > MaxTitle {
		_, size := utf8.DecodeLastRuneInString(of)
		of = of[:len(of)-size]
	}
	return of + events.ForkSuffix
}
