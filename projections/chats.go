package projections

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
)

type Chat struct {
	store.Record
	Title      string `db:"title" json:"title"`
	Session    string `db:"ai_engine_session_id" json:"ai_engine_session_id"` // the last session that was bound to it
	EngineType string `db:"engine_type" json:"engine_type"`
	Engine     string `db:"engine" json:"engine"`
	User       string `db:"user" json:"user"` // owner; empty for an adopted chat
	Agent      string `db:"agent" json:"agent"`
	LastActive string `db:"last_active" json:"last_active"`
	Preview    string `db:"preview" json:"preview"` // the newest text, as one line without Markdown
	Turn       string `db:"turn" json:"turn"`       // side that must act: user, assistant
	// sequence of the event that set Turn, 0 before the first
	TurnPosition int64  `db:"turn_position" json:"turn_position"`
	Description  string `db:"description" json:"description"`
	Archived     bool   `db:"archived" json:"archived"`
	Tags         string `db:"tags" json:"tags"`
	Adopted      bool   `db:"adopted" json:"adopted"`
	Titled       bool   `db:"titled" json:"-"` // the title does not follow that of the session
	Outbox       int64  `db:"outbox" json:"-"` // submitted messages that OpenCode does not have yet
	// ids of the messages of a person that wait, in order, with a space between them
	Queue string `db:"queue" json:"-"`
	Holds bool   `db:"holds" json:"-"` // a stop may hold messages of the queue

	Parent    string `db:"parent" json:"parent"`       // of a delegate: the chat that delegated to it
	Root      string `db:"root" json:"root"`           // the chat at the root of its tree: its own id if it is no delegate
	Depth     int64  `db:"depth" json:"depth"`         // in the tree, 0 at its root
	Directory string `db:"directory" json:"directory"` // where a delegate works; empty for the workspace
	Worktree  string `db:"worktree" json:"worktree"`   // root of a delegate's git worktree, until it is removed
	Branch    string `db:"branch" json:"branch"`       // of the worktree, until it is removed
	Kept      string `db:"kept" json:"kept"`           // why the worktree of a deleted delegate was kept
	Awaited   bool   `db:"awaited" json:"awaited"`     // the tool call that started a delegate waits for its result
	// ids of the delegated messages of a delegate that have no result, in order, with a space between them
	Delegated string `db:"delegated" json:"-"`
	Current   string `db:"current" json:"-"`    // turn that says the state of the chat; empty before its first
	LastEnded string `db:"last_ended" json:"-"` // turn that ended last; empty before the first end
	// ids of the turns that are not over and not in the queue, with a space between them
	Open    string `db:"open" json:"-"`
	Started int64  `db:"started" json:"-"` // sequence of the last message.sending
}

// Whose turn it is.
const (
	TurnUser      = "user"
	TurnAssistant = "assistant"
)

// engineType is the kind of all engines there are.
const engineType = "opencode"

// updateChats runs after sessions and messages. updateTurns sets whose turn it is.
func updateChats(t *tables, e events.Event, body any) error {
	c, found := t.chats.Get(e.Subject.ID)
	if b, ok := body.(events.ChatCreated); ok && !found {
		c.Title, c.User, c.Engine, c.Agent, c.Adopted = events.DefaultTitle, b.User, b.Engine, b.Agent, b.Adopted
		c.Titled = b.Title != "" && !b.Adopted
		c.setTitle(b.Title)
		c.Description, c.Archived, c.Tags = b.Description, b.Archived, b.Tags
		c.place(b.Parent)
		c.EngineType, c.Turn, c.LastActive = engineType, TurnUser, t.tx.EventTime()
	} else if b, ok := body.(events.ChatErased); ok && !found {
		t.chats.Put(erasedChat(t, c, b))
		return nil
	} else if !found {
		return nil
	}
	switch b := body.(type) {
	case events.ChatUpdated:
		c.update(b)
	case events.Deleted:
		c.Removed = true
	case events.WorktreeClosed:
		if c.Kept, c.Branch = b.Kept, b.Branch; b.Kept == "" {
			c.Worktree = ""
		}
	case events.SessionBound:
		c.Session = b.Session
	case events.MessageSubmitted:
		if m, _ := t.messages.Get(b.Message); m.First != int64(e.Seq) { // its id was in use, so there is no new message
			return nil
		}
		c.LastActive = max(c.LastActive, t.tx.EventTime())
		for _, p := range b.Parts {
			c.addWords(p.Text)
		}
	case events.MessageEdited:
		for _, p := range b.Parts {
			c.addWords(p.Text)
		}
	case events.MessageSending:
		c.Started = int64(e.Seq)
	case opencode.SessionUpdated:
		if !c.Titled && b.SessionID == c.Session {
			s, _ := t.sessions.Get(b.SessionID)
			c.setTitle(s.Title)
		}
	case events.ForkRequested:
		if into, found := t.chats.Get(b.Chat); found && !into.Titled {
			into.Title, into.Titled = c.Title+events.ForkSuffix, true
			t.chats.Put(into)
		}
	}
	t.chats.Put(c)
	return nil
}

// erasedTitle is the title of a chat whose text an operator erased.
const erasedTitle = "erased"

func erasedChat(t *tables, c Chat, b events.ChatErased) Chat {
	c.Title, c.User, c.Removed = erasedTitle, b.User, b.Deleted
	c.EngineType, c.Turn, c.LastActive = engineType, TurnUser, t.tx.EventTime()
	c.place(nil)
	return c
}

// place sets where a chat is in the tree of its delegates.
func (c *Chat) place(parent *events.Parent) {
	c.Root = c.ID
	if parent != nil {
		c.Parent, c.Root, c.Depth, c.Directory = parent.Chat, parent.Root, int64(parent.Depth), parent.Directory
		c.Awaited, c.Worktree, c.Branch = parent.Wait, parent.Worktree, parent.Branch
	}
}

// set changes a field if the event has a value for it.
func set[V any](field *V, to *V) {
	if to != nil {
		*field = *to
	}
}

func (c *Chat) update(b events.ChatUpdated) {
	c.Titled = c.Titled || b.Title != nil
	set(&c.Title, b.Title)
	set(&c.Description, b.Description)
	set(&c.Archived, b.Archived)
	set(&c.Tags, b.Tags)
	set(&c.Agent, b.Agent)
	set(&c.User, b.User)
}

// addText records activity in a session of a chat. Only the chat's own session changes the preview.
func (t *tables) addText(chat, session, text string) {
	if c, found := t.chats.Get(chat); found {
		c.LastActive = max(c.LastActive, t.tx.EventTime())
		if session == c.Session {
			c.addWords(text)
		}
		t.chats.Put(c)
	}
}

// addWords sets the preview to the beginning of a text. The beginning of the first text is the title until there is
// another. addWords ignores a text without words.
func (c *Chat) addWords(text string) {
	preview := previewOf(text)
	if preview == "" {
		return
	}
	c.Preview = preview
	if c.Title == events.DefaultTitle && !c.Titled {
		c.setTitle(firstWords(text))
	}
}

// setTitle sets the title. It ignores an empty title and the default titles of OpenCode.
func (c *Chat) setTitle(title string) {
	if !opencode.IsDefaultTitle(title) {
		c.Title = cmp.Or(title, c.Title)
	}
}

// maxWords is the length of a title that is made of the first words of a chat, in runes.
const maxWords = 60

// firstWords returns the beginning of the first line of a text.
func firstWords(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.Join(strings.Fields(line), " ")
	if utf8.RuneCountInString(line) > maxWords {
		line = string([]rune(line)[:maxWords-1]) + "…"
	}
	return line
}

// Chats lists chats of persons that are not deleted, those with the newest activity first.
func (m *Model) Chats(ctx context.Context, limit, offset int) ([]Chat, error) {
	return store.List[Chat](ctx, m.Model, "chats",
		"SELECT * FROM chats WHERE NOT removed AND parent='' ORDER BY last_active DESC, id LIMIT {:limit} OFFSET {:offset}",
		dbx.Params{"limit": limit, "offset": offset})
}

// Chat returns a chat, also a deleted one (Removed), and whether there is one.
func (m *Model) Chat(ctx context.Context, id string) (Chat, bool, error) {
	return store.First[Chat](ctx, m.Model, "chat "+id, "SELECT * FROM chats WHERE id={:id}", dbx.Params{"id": id})
}
