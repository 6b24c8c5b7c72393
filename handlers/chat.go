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

	Description string `json:"description,omitempty"`
	Archived    bool   `json:"archived,omitempty"`
	Tags        string `json:"tags,omitempty"`
}

// UpdateChat changes what a person says about a chat; a nil field stays as it is.
type UpdateChat struct {
	Command
	Chat        string  `json:"chat"`
	Title       *string `json:"title,omitempty"`
	Description *string `json:"description,omitempty"`
	Tags        *string `json:"tags,omitempty"`
	Agent       *string `json:"agent,omitempty"`
	User        *string `json:"user,omitempty"` // a new owner
	Archived    *bool   `json:"archived,omitempty"`
}

// DeleteChat takes a chat away from those who read, and stops what runs in it.
type DeleteChat struct {
	Command
	Chat string `json:"chat"`
}

// maxTitle is the longest title of a chat, in bytes.
const maxTitle = 500

// maxText is the longest description and the longest tags of a chat, in characters: PocketBase's limit for a text field.
const maxText = 5000

// DefaultTitle is that of a chat nobody named.
const DefaultTitle = "New chat"

// DefaultEngine is the OpenCode of a single-node installation.
const DefaultEngine = "local"

// chatState is the life of a chat, and what is said about it.
type chatState struct {
	created, deleted, last uint64
	as                     events.ChatCreated // when it was created
	now                    about
	causes                 map[string]uint64 // commands, and where they were carried out
}

type about struct {
	title, description, tags, agent, user string
	archived                              bool
}

// chatFilter matches a chat's life: created, updated, deleted.
func chatFilter(chat string) string { return events.ChatSubject(chat, "*") }

func (s *chatState) apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.ChatCreated:
		s.created, s.as = e.Seq, d
		s.now = about{title: d.Title, description: d.Description, tags: d.Tags, agent: d.Agent, user: d.User, archived: d.Archived}
	case events.ChatUpdated:
		change(&s.now.title, d.Title)
		change(&s.now.description, d.Description)
		change(&s.now.tags, d.Tags)
		change(&s.now.agent, d.Agent)
		change(&s.now.user, d.User)
		change(&s.now.archived, d.Archived)
	case events.Deleted:
		s.deleted = e.Seq
	default:
		return
	}
	s.last = e.Seq
	if s.causes == nil {
		s.causes = map[string]uint64{}
	}
	s.causes[e.Cause] = e.Seq
}

func change[T any](field *T, to *T) {
	if to != nil {
		*field = *to
	}
}

// differing is want if it is something else than what is now.
func differing[T comparable](now T, want *T) *T {
	if want == nil || *want == now {
		return nil
	}
	return want
}

// missing says why a command on the chat is refused, nil when the chat is there.
func (s *chatState) missing(chat string) error {
	if s.created == 0 || s.deleted != 0 {
		return refuse(NotFound, "there is no chat %s", chat)
	}
	return nil
}

// CreateChat carries out the command. A chat that was created with the same content is not created again, however it was
// changed since, as long as it has the same owner.
func (h *Handlers) CreateChat(ctx context.Context, c CreateChat) (chat string, seq uint64, err error) {
	if c.Chat == "" {
		c.Chat = events.NewID()
	}
	if c.Engine == "" {
		c.Engine = DefaultEngine
	}
	if err := c.check(); err != nil {
		return "", 0, err
	}
	created := events.ChatCreated{
		Title: c.Title, User: c.User, Engine: c.Engine, Agent: c.Agent, Description: c.Description, Archived: c.Archived, Tags: c.Tags,
	}
	s := &chatState{}
	seq, err = h.handle(ctx, c.Chat, c.Command, s, []string{chatFilter(c.Chat)}, func() (events.Data, uint64, error) {
		switch {
		case s.deleted != 0:
			return nil, 0, refuseField(Conflict, "id", "chat %s was deleted", c.Chat)
		case s.created != 0 && (s.as != created || s.now.user != c.User):
			return nil, 0, refuseField(Conflict, "id", "chat %s exists already", c.Chat)
		case s.created != 0:
			return nil, s.created, nil
		}
		return created, 0, nil
	})
	return c.Chat, seq, err
}

func (c *CreateChat) check() (err error) {
	if _, err := events.ParseID(c.Chat); err != nil {
		return refuseField(Invalid, "id", "chat: %v", err)
	}
	if _, err := events.ParseID(c.Engine); err != nil {
		return refuseField(Invalid, "engine", "engine: %v", err)
	}
	if c.Title, err = checkTitle(c.Title); err != nil {
		return err
	}
	if err := checkText("description", c.Description); err != nil {
		return err
	}
	return checkText("tags", c.Tags)
}

// checkTitle gives the title as it is stored.
func checkTitle(title string) (string, error) {
	if title = strings.TrimSpace(title); title == "" {
		title = DefaultTitle
	}
	if len(title) > maxTitle || !utf8.ValidString(title) {
		return "", refuseField(Invalid, "title", "title: want at most %d bytes of UTF-8, got %d", maxTitle, len(title))
	}
	return title, nil
}

func checkText(field, text string) error {
	if n := utf8.RuneCountInString(text); n > maxText || !utf8.ValidString(text) {
		return refuseField(Invalid, field, "%s: want at most %d characters of UTF-8, got %d", field, maxText, n)
	}
	return nil
}

// UpdateChat carries out the command. When nothing changes, nothing is stored, and seq is that of the last change.
func (h *Handlers) UpdateChat(ctx context.Context, c UpdateChat) (seq uint64, err error) {
	if c.Title != nil {
		title, err := checkTitle(*c.Title)
		if err != nil {
			return 0, err
		}
		c.Title = &title
	}
	if err := c.check(); err != nil {
		return 0, err
	}
	s := &chatState{}
	return h.handle(ctx, c.Chat, c.Command, s, []string{chatFilter(c.Chat)}, func() (events.Data, uint64, error) { return s.update(c) })
}

func (c UpdateChat) check() error {
	for name, text := range map[string]*string{"description": c.Description, "tags": c.Tags} {
		if text != nil {
			if err := checkText(name, *text); err != nil {
				return err
			}
		}
	}
	if c.Agent != nil && *c.Agent != "" {
		if _, err := events.ParseID(*c.Agent); err != nil {
			return refuseField(Invalid, "agent", "agent: %v", err)
		}
	}
	if c.User != nil {
		if _, err := events.ParseID(*c.User); err != nil {
			return refuseField(Invalid, "user", "user: %v", err)
		}
	}
	return nil
}

func (s *chatState) update(c UpdateChat) (events.Data, uint64, error) {
	if err := s.missing(c.Chat); err != nil {
		return nil, 0, err
	}
	if seq := s.causes[c.ID]; c.ID != "" && seq != 0 {
		return nil, seq, nil
	}
	d := events.ChatUpdated{
		Title: differing(s.now.title, c.Title), Description: differing(s.now.description, c.Description), Tags: differing(s.now.tags, c.Tags),
		Agent: differing(s.now.agent, c.Agent), User: differing(s.now.user, c.User), Archived: differing(s.now.archived, c.Archived),
	}
	if d == (events.ChatUpdated{}) {
		return nil, s.last, nil
	}
	return d, 0, nil
}

// DeleteChat carries out the command. A chat that is deleted already is not deleted again. A command that was being decided
// meanwhile can still be recorded after it: whoever acts on one looks whether the chat is there.
func (h *Handlers) DeleteChat(ctx context.Context, c DeleteChat) (seq uint64, err error) {
	if _, err := events.ParseID(c.Chat); err != nil {
		return 0, refuseField(Invalid, "id", "chat: %v", err)
	}
	s := &chatState{}
	return h.carryOut(ctx, c.Command, fold(s, []string{chatFilter(c.Chat)}), func() ([]events.Event, uint64, error) {
		if s.deleted != 0 {
			return nil, s.deleted, nil
		}
		if err := s.missing(c.Chat); err != nil {
			return nil, 0, err
		}
		abort, err := events.New(c.Chat, c.Actor, events.AbortRequested{})
		if err != nil {
			return nil, 0, err
		}
		deleted, err := events.New(c.Chat, c.Actor, events.Deleted{})
		return []events.Event{abort, deleted}, 0, err
	})
}
