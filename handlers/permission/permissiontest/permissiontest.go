// Package permissiontest helps tests that decide permission requests: it has a log with its handlers, and a running
// gate.
//
// It must not be linked into a product.
package permissiontest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
	"pocketcoder/handlers/sshkey"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

// Handlers are all that carry out commands on one log.
type Handlers struct {
	Log         *log.Log
	Chats       *chat.Chats
	Records     *record.Records
	Permissions *permission.Permissions
}

// New returns handlers on a log. types are further types of records: those of packages that the tests of others import.
func New(l *log.Log, types ...record.Type) *Handlers {
	types = slices.Concat(types, agent.Types, rule.Types, proposal.Types, channel.DeviceTypes, model.Types,
		[]record.Type{agent.NoteType, sshkey.Type, mcpserver.Programs(nil).Type()})
	return &Handlers{Log: l, Chats: &chat.Chats{Log: l}, Records: record.Open(l, types...),
		Permissions: &permission.Permissions{Log: l}}
}

// Open returns handlers on a log with one chat that has two requests and two questions.
func Open(t testing.TB) *Handlers {
	t.Helper()
	h := New(eventstest.Log(t))
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1",
		Title: "first"})
	is.New(t).NoErr(err)
	handlerstest.Happened(t, h.Log, "c1", handlerstest.Bash("per_1", "ls"), handlerstest.Bash("per_2", "id"),
		handlerstest.TwoRequests)
	return h
}

// SaveRecord creates or changes a rule record, and returns the sequence of the event.
func SaveRecord(t testing.TB, h *Handlers, collection, id, fields string) uint64 {
	t.Helper()
	is := is.New(t)
	e, err := events.NewConfig(collection, id, handlerstest.Alice, events.Saved{Fields: json.RawMessage(fields)})
	is.NoErr(err)
	seq, err := h.Log.Append(t.Context(), e)
	is.NoErr(err)
	return seq
}

func DeleteRecord(t testing.TB, h *Handlers, collection, id string) {
	t.Helper()
	is := is.New(t)
	_, err := h.Records.Delete(t.Context(), record.Delete{Collection: collection, Record: id})
	is.NoErr(err)
}

// SubmitBash is a request for a command, as an agent makes it over the API; it names a session and a call of
// OpenCode's.
func SubmitBash(id, command string) permission.Submit {
	metadata, _ := json.Marshal(map[string]string{"command": command})
	return permission.Submit{
		Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1", Permission: id, Type: "bash", Patterns: []string{command}, Metadata: metadata,
		Session: "ses_1", Call: "call_per_1",
	}
}

// history reads the requests from a read model that it makes for each call.
func history(l *log.Log) permission.RequestHistory {
	return func(ctx context.Context, chat string, each func(events.PastRequest) bool) error {
		return withModel(ctx, l, func(m *projections.Model) error { return m.PastRequests(ctx, chat, each) })
	}
}

func lastOfExecution(l *log.Log) func(context.Context, string) (uint64, error) {
	return func(ctx context.Context, exec string) (seq uint64, err error) {
		err = withModel(ctx, l, func(m *projections.Model) (err error) {
			seq, err = m.LastOfExecution(ctx, exec)
			return err
		})
		return seq, err
	}
}

// withModel calls fn with a read model that is made for this call.
func withModel(ctx context.Context, l *log.Log, fn func(*projections.Model) error) error {
	dir, err := os.MkdirTemp("", "model-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m, err := projectionstest.Open(ctx, dir, l)
	if err != nil {
		return err
	}
	defer m.Close()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(running) }()
	defer func() { stop(); <-ended }()
	return fn(m)
}

// GateOn returns a gate that does not run. It works in /.
func GateOn(h *Handlers) permission.Gate {
	return permission.Gate{
		History: history(h.Log), LastOfExecution: lastOfExecution(h.Log),
		Permissions: h.Permissions, Records: h.Records, Logger: handlerstest.Quiet(), Rules: []policy.Rule{{Permission: "bash", Pattern: "git status*"}}, Workspace: "/",
		Session: func(string) (permission.Session, bool) { return permission.Session{}, false },
		Call: func(context.Context, string, events.Call, time.Duration) (permission.Call, bool) {
			return permission.Call{}, false
		},
	}
}

// RunningGate is a gate that runs with the default rules and one more, on chat c1 whose session ses_1 works in
// directory.
type RunningGate struct {
	*Handlers
	Directory string
	Stop      func()
	T         testing.TB
	Gate      permission.Gate // that runs
	Evaluated uint64          // all requests up to this sequence count as evaluated; 0 for none

	Mu      sync.Mutex
	Cwds    map[string]string // of calls, when it is not the directory; empty is not known
	Several map[string]bool   // calls that share their id with another
}

func OpenGate(t testing.TB) *RunningGate {
	t.Helper()
	is := is.New(t)
	g := &RunningGate{Handlers: New(eventstest.Log(t)), T: t, Cwds: map[string]string{}, Several: map[string]bool{}}
	temp, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	g.Directory = filepath.Join(temp, "workspace")
	is.NoErr(os.Mkdir(g.Directory, 0o700))
	_, _, err = g.Chats.Create(t.Context(), chat.Create{Chat: "c1"})
	is.NoErr(err)
	g.Start()
	return g
}

// Start starts the gate as a new process would: it knows what is in the log.
func (g *RunningGate) Start() {
	ctx, cancel := context.WithCancel(g.T.Context())
	done := make(chan error, 1)
	h := New(g.Log)
	g.Gate = permission.Gate{
		Permissions: h.Permissions, Records: h.Records, Logger: handlerstest.Quiet(), Workspace: g.Directory,
		Rules: append([]policy.Rule{{Permission: "bash", Pattern: "git status*"}}, policy.Defaults...),
		Session: func(id string) (permission.Session, bool) {
			return permission.Session{Chat: "c1", Directory: g.Directory}, id == "ses_1"
		},
		Call: g.call, History: history(g.Log), LastOfExecution: lastOfExecution(g.Log),
		Evaluated: func(context.Context) (uint64, error) { return g.Evaluated, nil },
	}
	gate := g.Gate
	go func() { done <- gate.Run(ctx) }()
	g.Stop = func() {
		cancel()
		is.New(g.T).True(errors.Is(<-done, context.Canceled))
		g.Stop = func() {}
	}
	g.T.Cleanup(func() { g.Stop() })
}

// call knows every call by the first request for it; the agent is build.
func (g *RunningGate) call(ctx context.Context, _ string, tool events.Call, _ time.Duration) (permission.Call, bool) {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	cwd, other := g.Cwds[tool.CallID]
	if !other {
		cwd = g.Directory
	}
	c := permission.Call{Cwd: cwd, Agent: "build", Several: g.Several[tool.CallID]}
	_, _ = g.Log.Fold(ctx, events.ChatOpenCodeSubject("c1", events.PermissionAsked), 0, func(e events.Event) error {
		a, _, err := events.PermissionRequestOf(e)
		if err != nil || a.Tool.CallID != tool.CallID {
			return nil
		}
		if c.Command = a.Command(); a.Permission == "read" && len(a.Patterns) > 0 {
			if c.Path = a.Patterns[0]; !filepath.IsAbs(c.Path) {
				c.Path = filepath.Join(g.Directory, c.Path)
			}
		}
		return events.ErrStop
	})
	return c, cwd != ""
}

// AwaitIdle waits until the gate has evaluated everything asked so far. It asks once more in c1, which is allowed.
func (g *RunningGate) AwaitIdle() {
	g.T.Helper()
	id := "per_" + events.NewID()
	handlerstest.Happened(g.T, g.Log, "c1", handlerstest.Permission(id, "ses_1", "call_"+id, "todowrite", []string{"*"},
		map[string]string{}))
	handlerstest.Await(g.T, g.Log, func(d events.PermissionDecided) bool { return d.Permission == id })
	// each chat has its own order, and requests over the API another
	for _, filter := range []string{events.ChatOpenCodeSubject("*", events.PermissionAsked),
		events.ChatSubject("*", events.PermissionRequested{}.Kind())} {
		_, err := g.Log.Fold(g.T.Context(), filter, g.Evaluated, func(e events.Event) error {
			if a, direct, err := events.PermissionRequestOf(e); err == nil {
				expect.Eventually(g.T, a.ID+" is evaluated", func() bool { return g.isEvaluated(e.Subject.ID, a.ID, direct) })
			}
			return nil
		})
		is.New(g.T).NoErr(err)
	}
}

func (g *RunningGate) isEvaluated(chat, id string, direct bool) (evaluated bool) {
	err := g.Gate.Permissions.Chat(g.T.Context(), chat).Read(g.T.Context(), g.Log, func(s *permission.State) error {
		r := s.Request(id)
		evaluated = !r.Pending() || r.Escalation.Seq != 0 || r.ViaAPI != direct // another request has the id
		return nil
	})
	is.New(g.T).NoErr(err)
	return evaluated
}

// Decisions are those on one request, with their events.
func (g *RunningGate) Decisions(permission string) (found []events.PermissionDecided, by []string) {
	g.T.Helper()
	all, data := handlerstest.History(g.T, g.Log, "c1")
	for i, d := range data {
		if d, ok := d.(events.PermissionDecided); ok && d.Permission == permission {
			found, by = append(found, d), append(by, all[i].Actor)
		}
	}
	return found, by
}

func (g *RunningGate) Decide(permissionID string, d events.Decision) {
	g.T.Helper()
	_, err := g.Gate.Decide(g.T.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: permissionID, Decision: d})
	is.New(g.T).NoErr(err)
}

// Record is the fields of a rule.
func (g *RunningGate) Record(id string) (r map[string]any) {
	g.T.Helper()
	is := is.New(g.T)
	collection, record, _ := strings.Cut(id, "/")
	_, err := g.Log.Fold(g.T.Context(), events.ConfigSubject(collection, record, "*"), 0, func(e events.Event) error {
		var d events.Saved
		r = nil
		is.NoErr(json.Unmarshal(e.Data, &d))
		return json.Unmarshal(d.Fields, &r)
	})
	is.NoErr(err)
	return r
}

func (g *RunningGate) Repeat(permission string) string {
	g.T.Helper()
	why, err := g.Permissions.ChangedFiles(g.T.Context(), "c1", permission, g.Directory)
	is.New(g.T).NoErr(err)
	return why
}

// Referrals are those of one request.
func (g *RunningGate) Referrals(permission string) (found []events.PermissionReferred) {
	g.T.Helper()
	_, data := handlerstest.History(g.T, g.Log, "c1")
	for _, d := range handlerstest.Of[events.PermissionReferred](data) {
		if d.Permission == permission {
			found = append(found, d)
		}
	}
	return found
}

// InForce is how a person would write the rules of a scope.
func InForce(t testing.TB, h *Handlers, s rule.Scope) (rules []string) {
	t.Helper()
	found, err := rule.InForce(t.Context(), h.Records, s)
	is.New(t).NoErr(err)
	for _, r := range found {
		rules = append(rules, r.String())
	}
	return rules
}
