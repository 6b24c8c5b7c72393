// Package delegate carries out the commands on delegates. A delegate is a chat of its own to which the assistant of
// another chat, its parent, delegates work. It has a queue, an agent, budgets and permission requests like every chat.
//
// Promises: the log holds the parent of a delegate before the delegate's first request. A delegated message
// gets one result. The parent gets each result once, in a message or as the output of a tool call, however many
// processes report it and however often they restart. A tool call starts one delegate, even if it is repeated. Messages
// stay within the tree of one person's chat.
//
// It must not know how a turn runs, or how a tool call reaches it. The package bridge/watch says when a turn is over.
package delegate

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/record"
)

// Delegates carries out the commands on delegates. Log, Chats, Records and In must be set. It is safe for concurrent
// use.
type Delegates struct {
	Log     *log.Log
	Chats   *chat.Chats
	Records *record.Records
	In      func(ctx context.Context, chat string) (Place, error) // where the delegates of a chat work
	Limits  Limits                                                // a zero field is the default

	// EndCommands ends the running commands of a chat, those in the background too.
	EndCommands func(ctx context.Context, chat, actor string) error

	// Active returns the delegates that have a message that waits or a turn that runs, at the end of the log.
	Active func(ctx context.Context) ([]string, error)

	starting sync.Mutex // held while the limits are checked and used

	trees   handlers.Folds[*tree]        // one
	results handlers.Folds[*resultState] // by delegate
	reports handlers.Folds[*reportState] // by chat
}

// Limits bound the delegates that run at a time.
type Limits struct {
	PerChat int // delegates of one chat
	All     int // in all chats
	Depth   int // of the tree
}

// defaultLimits are those of an installation without flags.
var defaultLimits = Limits{PerChat: 8, All: 32, Depth: 2}

func (h *Delegates) limits() Limits {
	return Limits{cmp.Or(h.Limits.PerChat, defaultLimits.PerChat), cmp.Or(h.Limits.All, defaultLimits.All),
		cmp.Or(h.Limits.Depth, defaultLimits.Depth)}
}

// Caller identifies the tool call with which an assistant sends a command. For a person, Session, Message and Call are
// empty.
type Caller struct {
	Chat    string
	Session string // OpenCode's
	Message string // OpenCode's id of the message with the call: models reuse ids of calls
	Call    string

	Subagent string // name of OpenCode's agent, if the session is that of a subagent
}

// tree holds the chats and their delegates. It can apply events in any order.
type tree struct {
	chats map[string]*node
}

type node struct {
	created  bool
	deleted  bool
	title    string
	engine   string
	project  string
	parent   *events.Parent // nil for a chat of a person
	finished bool           // the delegate's first message has a result
}

func (s *tree) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	n := s.chats[e.Subject.ID]
	if n == nil {
		n = &node{}
		s.chats[e.Subject.ID] = n
	}
	switch d := d.(type) {
	case events.ChatCreated:
		n.created, n.title, n.engine, n.project, n.parent = true, d.Title, d.Engine, d.ProjectID(), d.Parent
	case events.Deleted, events.ChatErased:
		n.deleted = true
	case events.DelegateFinished:
		n.finished = n.finished || d.Message == events.FirstMessageOf(e.Subject.ID)
	}
}

// tree returns the fold of all chats.
func (h *Delegates) tree(ctx context.Context) *handlers.Fold[*tree] {
	return h.trees.Get(ctx, "", func() *handlers.Fold[*tree] {
		filter := func(d events.Data) string { return events.ChatSubject("*", d.Kind()) }
		return handlers.NewFold(&tree{map[string]*node{}}, filter(events.ChatCreated{}), filter(events.Deleted{}),
			filter(events.ChatErased{}), filter(events.DelegateFinished{}))
	})
}

// chat returns a chat that exists, or a refusal.
func (s *tree) chat(id string) (*node, error) {
	n := s.chats[id]
	if n == nil || !n.created || n.deleted {
		return nil, handlers.Refuse(handlers.NotFound, "there is no chat %s", id)
	}
	return n, nil
}

// delegate returns a delegate that exists, or a refusal.
func (s *tree) delegate(id string) (*node, error) {
	n, err := s.chat(id)
	if err != nil || n.parent == nil {
		return nil, handlers.Refuse(handlers.NotFound, "there is no delegate %s", id)
	}
	return n, nil
}

// root returns the chat at the root of the tree of a chat.
func (s *tree) root(id string) string {
	if n := s.chats[id]; n != nil && n.parent != nil {
		return n.parent.Root
	}
	return id
}

// isBelow reports whether a delegate has a chat above it in its tree.
func (s *tree) isBelow(delegate, chat string) bool {
	for n := s.chats[delegate]; n != nil && n.parent != nil; n = s.chats[delegate] {
		if delegate = n.parent.Chat; delegate == chat {
			return true
		}
	}
	return false
}

// running counts the delegates that have no result yet or are active, of a chat and in all.
func (s *tree) running(parent string, active []string) (own, all int) {
	for id, n := range s.chats {
		if n.parent == nil || n.deleted || !n.created || n.finished && !slices.Contains(active, id) {
			continue
		}
		if all++; n.parent.Chat == parent {
			own++
		}
	}
	return own, all
}

// active returns the delegates that Active returns.
func (h *Delegates) active(ctx context.Context) ([]string, error) {
	if h.Active == nil {
		return nil, nil
	}
	return h.Active(ctx)
}
