// Package chat carries out the commands on chats: create, change, delete, fork and revert a chat, leave files out,
// submit a message, change the queue of messages that wait, abort a turn, answer a question. It also lists the slash
// commands that a person can write instead of a message, on a page, at a terminal and in a messenger.
//
// Promises: a message that is submitted twice under one id is stored once. A message changes while it waits, and never
// once the outbox has begun to send it, unless it is held back after a loss of events: then it waits again. The first
// answer to a question wins. Nothing is decided in a chat that was deleted, except that its questions expire. What
// OpenCode has to do is an event here; the outbox carries it out. A slash command has the same name and does the same
// in every place that has it.
//
// It must not know how a place carries out a slash command, how permission requests are decided, configuration records
// other than projects, or how OpenCode is spoken to.
package chat

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/project"
)

// Create creates a chat. Chat is an id of the caller's choice, or empty.
type Create struct {
	handlers.Command
	Chat   string `json:"chat,omitempty"`
	Title  string `json:"title,omitempty"` // empty to have one generated
	User   string `json:"user,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Engine string `json:"engine,omitempty"`

	Description string `json:"description,omitempty"`
	Archived    bool   `json:"archived,omitempty"`
	Tags        string `json:"tags,omitempty"`
	Project     string `json:"project,omitempty"` // empty to choose one; see project.Projects.Choose

	Parent  *events.Parent  `json:"-"` // of a delegate
	Ceiling *events.Ceiling `json:"-"` // of a chat that a schedule starts
}

// Update changes fields of a chat that a person may set. A nil field does not change.
type Update struct {
	handlers.Command
	Chat        string  `json:"chat"`
	Title       *string `json:"title,omitempty"`
	Description *string `json:"description,omitempty"`
	Tags        *string `json:"tags,omitempty"`
	Agent       *string `json:"agent,omitempty"`
	User        *string `json:"user,omitempty"` // a new owner
	Archived    *bool   `json:"archived,omitempty"`
	Shared      *bool   `json:"shared,omitempty"` // whether all who have access to the project may read the chat
}

// Delete hides a chat and stops its turn and its commands.
type Delete struct {
	handlers.Command
	Chat string `json:"chat"`
}

// MaxTitle is the longest title of a chat, in bytes.
const MaxTitle = 500

// maxText is the longest description and the longest tags of a chat, in characters: PocketBase's limit for a text
// field.
const maxText = 5000

// DefaultEngine is the engine of the first project. An installation without projects has no other.
const DefaultEngine = events.DefaultEngine

// EngineConsumer is the name of a durable consumer of one engine. That of the first engine has the name alone.
func EngineConsumer(name, engine string) string {
	if engine == DefaultEngine {
		return name
	}
	return name + "-" + engine
}

// Chats carries out the commands on chats. It is safe for concurrent use.
type Chats struct {
	Log      *log.Log
	Projects *project.Projects // nil for chats that are all in the project of the default engine

	chats    handlers.Folds[*chatState]    // by chat
	messages handlers.Folds[*messageState] // by chat
	seen     handlers.Folds[seenState]     // by account
	newest   handlers.Folds[newestProject] // one, under ""
}

type chatState struct {
	handlers.ChatState
	last   uint64             // sequence of the last change
	as     events.ChatCreated // when it was created
	now    chatFields
	causes map[string]uint64 // commands, and where they were carried out
}

type chatFields struct {
	title, description, tags, agent string
	archived, shared                bool
}

func (s *chatState) Apply(e events.Event) {
	s.ChatState.Apply(e)
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.ChatCreated:
		s.as = d
		s.now = chatFields{title: d.Title, description: d.Description, tags: d.Tags, agent: d.Agent, archived: d.Archived}
	case events.ChatUpdated:
		change(&s.now.title, d.Title)
		change(&s.now.description, d.Description)
		change(&s.now.tags, d.Tags)
		change(&s.now.agent, d.Agent)
		change(&s.now.archived, d.Archived)
		change(&s.now.shared, d.Shared)
	case events.Deleted:
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

// differing returns the wanted value, nil if it is the current one.
func differing[T comparable](now T, want *T) *T {
	if want == nil || *want == now {
		return nil
	}
	return want
}

// chat returns the cached fold of a chat.
func (h *Chats) chat(ctx context.Context, chat string) *handlers.Fold[*chatState] {
	return h.chats.Get(ctx, chat, func() *handlers.Fold[*chatState] {
		return handlers.NewFold(&chatState{}, handlers.ChatFilter(chat))
	})
}

// Create has no effect if the chat was created with the same content and has the same owner, even if the chat has
// changed since.
func (h *Chats) Create(ctx context.Context, c Create) (chat string, seq uint64, err error) {
	c.Chat = cmp.Or(c.Chat, events.NewID())
	given := c
	if err := h.choose(ctx, &c); err != nil {
		return "", 0, err
	}
	created, err := c.Event()
	if err != nil {
		return "", 0, err
	}
	f := h.chat(ctx, c.Chat)
	seq, err = f.ExecuteOne(ctx, h.Log, c.Chat, c.Command, func(s *chatState) (events.Data, uint64, error) {
		if s.Created != 0 && given.Project == "" && h.Projects != nil { // the choice could be another one now
			created.Project, created.Engine, created.Agent = s.as.Project, s.as.Engine, cmp.Or(given.Agent, s.as.Agent)
		}
		switch {
		case s.Deleted != 0:
			return nil, 0, handlers.RefuseField(handlers.Conflict, "id", "chat %s was deleted", c.Chat)
		case s.Created != 0 && (s.as != created || s.Owner != c.User):
			return nil, 0, handlers.RefuseField(handlers.Conflict, "id", "chat %s exists already", c.Chat)
		case s.Created != 0:
			return nil, s.Created, nil
		}
		return created, 0, nil
	})
	return c.Chat, seq, err
}

// ProjectOf returns the project of a chat, "" if there is no such chat.
func (h *Chats) ProjectOf(ctx context.Context, chat string) (project string, err error) {
	err = h.chat(ctx, chat).Read(ctx, h.Log, func(s *chatState) error { project = s.Project; return nil })
	return project, err
}

// choose sets the project of a new chat, and what follows from it.
func (h *Chats) choose(ctx context.Context, c *Create) error {
	found, err := h.ChooseProject(ctx, c.User, c.Project)
	c.Project, c.Agent = found.ID, cmp.Or(c.Agent, found.Agent)
	return err
}

// ChooseProject returns the project of a new chat of an account, which names a project or none.
func (h *Chats) ChooseProject(ctx context.Context, user, wanted string) (project.Project, error) {
	if h.Projects == nil {
		return project.Project{ID: wanted}, nil
	}
	return h.Projects.Choose(ctx, user, wanted, func(ctx context.Context) (string, error) {
		return h.projectOfNewest(ctx, user)
	})
}

// ProjectsFor returns the projects in which an account may have chats, by name, and the id of the one in which it
// created its newest chat, "" for none.
func (h *Chats) ProjectsFor(ctx context.Context, user string) (all []project.Project, newest string, err error) {
	if all, err = h.Projects.MayWork(ctx, user); err != nil {
		return nil, "", err
	}
	newest, err = h.projectOfNewest(ctx, user)
	return all, newest, err
}

// projectOfNewest returns the project of the newest chat of an account, "" for none.
func (h *Chats) projectOfNewest(ctx context.Context, user string) (id string, err error) {
	f := h.newest.Get(ctx, "", func() *handlers.Fold[newestProject] {
		return handlers.NewFold(newestProject{}, events.ChatSubject("*", events.ChatCreated{}.Kind()))
	})
	err = f.Read(ctx, h.Log, func(s newestProject) error { id = s[user]; return nil })
	return id, err
}

// newestProject is the project of the newest chat of each account.
type newestProject map[string]string

func (s newestProject) Apply(e events.Event) {
	d, _ := events.Decode(e) // nil for an event that cannot be read
	if created, ok := d.(events.ChatCreated); ok && created.Parent == nil {
		s[created.User] = created.ProjectID()
	}
}

// Event returns the event of the new chat, or why it is refused. It is for a decision that makes more than the chat.
func (c Create) Event() (events.ChatCreated, error) {
	c.Engine = cmp.Or(c.Engine, c.Project, DefaultEngine)
	err := c.check()
	if c.Project == c.Engine {
		c.Project = "" // see events.ChatCreated.ProjectID
	}
	return events.ChatCreated{Project: c.Project, Title: c.Title, User: c.User, Engine: c.Engine, Agent: c.Agent,
		Description: c.Description,
		Archived:    c.Archived, Tags: c.Tags, Parent: c.Parent, Ceiling: c.Ceiling}, err
}

func (c *Create) check() (err error) {
	if _, err := events.ParseID(c.Chat); err != nil {
		return handlers.RefuseField(handlers.Invalid, "id", "chat: %v", err)
	}
	if _, err := events.ParseID(c.Engine); err != nil {
		return handlers.RefuseField(handlers.Invalid, "engine", "engine: %v", err)
	}
	if c.Title, err = checkTitle(c.Title); err != nil {
		return err
	}
	if err := checkText("description", c.Description); err != nil {
		return err
	}
	return checkText("tags", c.Tags)
}

// checkTitle returns the title in its stored form.
func checkTitle(title string) (string, error) {
	title = strings.TrimSpace(title)
	if len(title) > MaxTitle || !utf8.ValidString(title) {
		return "", handlers.RefuseField(handlers.Invalid, "title", "title: want at most %d bytes of UTF-8, got %d", MaxTitle,
			len(title))
	}
	return title, nil
}

func checkText(field, text string) error {
	if n := utf8.RuneCountInString(text); n > maxText || !utf8.ValidString(text) {
		return handlers.RefuseField(handlers.Invalid, field, "%s: want at most %d characters of UTF-8, got %d", field,
			maxText, n)
	}
	return nil
}

// Update stores nothing if nothing changes. seq is then the sequence of the last change.
func (h *Chats) Update(ctx context.Context, c Update) (seq uint64, err error) {
	if c.Title != nil {
		title, err := checkTitle(*c.Title)
		if err != nil {
			return 0, err
		}
		title = cmp.Or(title, events.DefaultTitle)
		c.Title = &title
	}
	if err := c.check(); err != nil {
		return 0, err
	}
	if err := handlers.CheckChat(c.Chat); err != nil {
		return 0, err
	}
	f := h.chat(ctx, c.Chat)
	return f.ExecuteOne(ctx, h.Log, c.Chat, c.Command, func(s *chatState) (events.Data, uint64, error) {
		if err := h.checkOwner(ctx, s, c.User); err != nil {
			return nil, 0, err
		}
		return s.update(c)
	})
}

// checkOwner refuses a new owner that could not work in the project of the chat.
func (h *Chats) checkOwner(ctx context.Context, s *chatState, owner *string) error {
	if h.Projects == nil || differing(s.Owner, owner) == nil {
		return nil
	}
	may, err := h.Projects.MayAct(ctx, *owner, handlers.ChatState{Owner: *owner, Project: s.Project})
	if err == nil && !may {
		err = handlers.RefuseField(handlers.Invalid, "user", "The account may not work in the project of the chat.")
	}
	return err
}

func (c Update) check() error {
	for name, text := range map[string]*string{"description": c.Description, "tags": c.Tags} {
		if text != nil {
			if err := checkText(name, *text); err != nil {
				return err
			}
		}
	}
	if c.Agent != nil && *c.Agent != "" {
		if _, err := events.ParseID(*c.Agent); err != nil {
			return handlers.RefuseField(handlers.Invalid, "agent", "agent: %v", err)
		}
	}
	if c.User != nil {
		if _, err := events.ParseID(*c.User); err != nil {
			return handlers.RefuseField(handlers.Invalid, "user", "user: %v", err)
		}
	}
	return nil
}

func (s *chatState) update(c Update) (events.Data, uint64, error) {
	if err := s.Missing(c.Chat); err != nil {
		return nil, 0, err
	}
	if seq := s.causes[c.ID]; c.ID != "" && seq != 0 {
		return nil, seq, nil
	}
	if c.Shared != nil && s.Parent != nil {
		return nil, 0, handlers.RefuseField(handlers.Invalid, "shared", "A delegate is shared together with the chat above it.")
	}
	d := events.ChatUpdated{
		Title: differing(s.now.title, c.Title), Description: differing(s.now.description, c.Description), Tags: differing(s.now.tags, c.Tags),
		Agent: differing(s.now.agent, c.Agent), User: differing(s.Owner, c.User), Archived: differing(s.now.archived, c.Archived),
		Shared: differing(s.now.shared, c.Shared),
	}
	if d == (events.ChatUpdated{}) {
		return nil, s.last, nil
	}
	return d, 0, nil
}

// Delete has no effect on a chat that is deleted already. Another command that was decided at the same time can be
// stored after the deletion, so reactions to commands check whether the chat exists.
func (h *Chats) Delete(ctx context.Context, c Delete) (seq uint64, err error) {
	if _, err := events.ParseID(c.Chat); err != nil {
		return 0, handlers.RefuseField(handlers.Invalid, "id", "chat: %v", err)
	}
	f := h.chat(ctx, c.Chat)
	return f.Execute(ctx, h.Log, c.Command, func(s *chatState) ([]events.Event, uint64, error) {
		if s.Deleted != 0 {
			return nil, s.Deleted, nil
		}
		if err := s.Missing(c.Chat); err != nil {
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
