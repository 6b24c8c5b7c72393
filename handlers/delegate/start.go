package delegate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission/workspace"
)

// Start delegates a message to a new delegate.
type Start struct {
	handlers.Command
	Parent    Caller
	Agent     string // name or record; empty for OpenCode's own agent
	Message   string
	Directory string // absolute or relative to that of the parent, which is the default
	Worktree  bool   // in a git worktree of its own, made of the repository of Directory
	Wait      bool   // the tool call waits for the result
}

type Started struct {
	Delegate string // id of its chat
	Message  string // id of the delegated message
	Seq      uint64
}

// Start is idempotent: a tool call that is repeated starts no second delegate.
func (h *Delegates) Start(ctx context.Context, c Start) (Started, error) {
	w, err := h.plan(ctx, c)
	if err != nil {
		return Started{}, err
	}
	h.starting.Lock()
	defer h.starting.Unlock()
	active, err := h.active(ctx)
	if err != nil {
		return Started{}, err
	}
	seq, err := handlers.Transaction(ctx, h.Log, func(ctx context.Context) error { return w.start(ctx, h, active) })
	if refused := (handlers.Refused{}); c.Worktree && errors.As(err, &refused) {
		_, closing := w.place.closeTree(ctx, worktree{w.parent.Worktree, w.parent.Branch})
		err = errors.Join(err, closing)
	}
	return Started{w.delegate, events.FirstMessageOf(w.delegate), seq}, err
}

// newDelegate is a delegate that Start is about to start.
type newDelegate struct {
	Start
	delegate string // id of its chat
	owner    string
	agent    agent.Agent
	parent   events.Parent
	place    Place
}

// plan checks a command and makes the worktree, if it wants one.
func (h *Delegates) plan(ctx context.Context, c Start) (w newDelegate, err error) {
	if err := handlers.CheckChat(c.Parent.Chat); err != nil {
		return w, err
	}
	if err := chat.CheckParts(partsOf(c.Message)); err != nil {
		return w, err
	}
	var parent handlers.ChatState
	f := handlers.NewFold(&parent, handlers.ChatFilter(c.Parent.Chat))
	if err := f.Read(ctx, h.Log, func(s *handlers.ChatState) error { return s.Missing(c.Parent.Chat) }); err != nil {
		return w, err
	}
	w = newDelegate{Start: c, delegate: events.NewID(), owner: parent.Owner}
	if w.agent, err = h.agent(ctx, c.Agent); err != nil {
		return w, err
	}
	if c.Parent.Call != "" {
		w.delegate = events.DelegateOf(c.Parent.Chat, c.Parent.Session, c.Parent.Message, c.Parent.Call)
	}
	w.Actor = cmp.Or(c.Actor, events.ChatActor(c.Parent.Chat))
	w.parent = events.Parent{Chat: c.Parent.Chat, Root: c.Parent.Chat, Depth: 1, Session: c.Parent.Session,
		Call: c.Parent.Call, Agent: parent.Agent, Subagent: c.Parent.Subagent, Wait: c.Wait}
	if p := parent.Parent; p != nil {
		w.parent.Root, w.parent.Depth, w.parent.Directory = p.Root, p.Depth+1, p.Directory
	}
	if w.place, err = h.In(ctx, c.Parent.Chat); err != nil {
		return w, err
	}
	if w.parent.Directory, err = w.place.directory(w.parent.Directory, c.Directory); err == nil && c.Worktree {
		t := w.place.worktreeOf(w.delegate)
		w.parent.Worktree, w.parent.Branch = t.root, t.branch
		w.parent.Directory, err = w.place.addWorktree(ctx, w.parent.Directory, t)
	}
	return w, err
}

func partsOf(message string) []events.Part {
	return []events.Part{{Type: "text", Text: message}}
}

// start creates the chat of the delegate and submits its message. It does nothing if the delegate was started before.
// Creating the chat depends on every chat that was created, because these count against the limits.
func (w newDelegate) start(ctx context.Context, h *Delegates, active []string) error {
	isNew := false
	_, err := h.tree(ctx).ExecuteOne(ctx, h.Log, w.delegate, w.Command, func(t *tree) (events.Data, uint64, error) {
		if n := t.chats[w.delegate]; n != nil && n.created {
			return nil, 0, nil
		}
		from, err := t.chat(w.parent.Chat)
		if err != nil {
			return nil, 0, err
		}
		if err := h.withinLimits(t, w.parent, active); err != nil {
			return nil, 0, err
		}
		isNew = true
		created, err := chat.Create{Chat: w.delegate, Title: title(w.agent.Name, w.Message), User: w.owner,
			Engine: from.engine, Project: from.project, Agent: w.agent.ID, Parent: &w.parent}.Event()
		return created, 0, err
	})
	if err != nil || !isNew {
		return err
	}
	_, _, err = h.Chats.SubmitMessage(ctx, chat.SubmitMessage{Command: w.Command, Chat: w.delegate,
		Message: events.FirstMessageOf(w.delegate), Parts: partsOf(w.Message), Sender: w.parent.Chat})
	return err
}

// withinLimits refuses a delegate that would exceed a limit.
func (h *Delegates) withinLimits(t *tree, above events.Parent, active []string) error {
	if most := h.limits().Depth; above.Depth > most {
		return handlers.Refuse(handlers.Conflict,
			"A delegate at depth %d cannot start delegates: the limit of the depth is %d. Do the work yourself.", above.Depth-1,
			most)
	}
	return h.mayRun(t, above.Chat, active)
}

// mayRun refuses a further running delegate of a chat that would exceed a limit.
func (h *Delegates) mayRun(t *tree, parent string, active []string) error {
	most := h.limits()
	own, all := t.running(parent, active)
	switch {
	case own >= most.PerChat:
		return handlers.Refuse(handlers.Conflict,
			"The chat has %d running delegates, which is the limit. Wait for a result, or stop a delegate.", own)
	case all >= most.All:
		return handlers.Refuse(handlers.Conflict,
			"All chats together have %d running delegates, which is the limit. Wait for a result, or stop a delegate.", all)
	}
	return nil
}

// agent returns the agent with a name or a record id.
func (h *Delegates) agent(ctx context.Context, named string) (agent.Agent, error) {
	if named == "" {
		return agent.Agent{}, nil
	}
	all, err := agent.Names(ctx, h.Records)
	if err != nil {
		return agent.Agent{}, err
	}
	for id, name := range all {
		if id == named || name == named {
			return agent.One(ctx, h.Records, id)
		}
	}
	known := "No agent is stored"
	if len(all) > 0 {
		known = "The agents are: " + strings.Join(slices.Sorted(maps.Values(all)), ", ")
	}
	return agent.Agent{}, handlers.RefuseField(handlers.Invalid, "agent",
		"There is no agent %q. %s. An empty name means OpenCode's own agent.", named, known)
}

// directory returns the directory of a delegate. An empty one means the workspace.
func (p Place) directory(parent, wanted string) (string, error) {
	if wanted == "" {
		return parent, nil
	}
	if parent == "" {
		parent = p.Workspace
	}
	if !filepath.IsAbs(wanted) {
		wanted = filepath.Join(parent, wanted)
	}
	real, ok := workspace.RealPath(wanted)
	root, _ := workspace.RealPath(p.Workspace)
	info, err := os.Stat(real)
	if !ok || real != root && !strings.HasPrefix(real, root+"/") || err != nil || !info.IsDir() {
		return "", handlers.RefuseField(handlers.Invalid, "directory", "%s is not a directory in the workspace %s.", wanted,
			p.Workspace)
	}
	return real, nil
}

// maxTitle is the length of the title of a delegate, in runes.
const maxTitle = 80

// title returns the title of a delegate: its agent, and the first words of its task.
func title(agent, message string) string {
	text := strings.Join(strings.Fields(message), " ")
	if agent != "" {
		text = agent + ": " + text
	}
	if utf8.RuneCountInString(text) > maxTitle {
		text = string([]rune(text)[:maxTitle-1]) + "…"
	}
	return text
}
