package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/exec"
	"pocketcoder/web/routes"
)

// sharedEngine is the engine of the system, on this node or on another one. It lets every node do what only the node
// with the engine can: ask OpenCode, signal a command, reach its ports, notify. On the node with the engine, these are
// calls; on another one, requests over NATS.
type sharedEngine struct {
	ID    string
	Conn  *nats.Conn
	Leads func() bool // reports whether this node has the engines; then the next fields do their work
	// Of returns the engine of a chat, and OfExecution that of an execution
	Of, OfExecution func(ctx context.Context, id string) (_ *engine, release func(), err error)
	// Workspace returns the directory of a chat's project
	Workspace func(chat string) string
	Push      *push.Push
	Logger    *slog.Logger
}

// openTimeout limits how long a request waits for the engine of a chat.
const openTimeout = time.Minute

// of returns the engine of a chat. It waits for openTimeout at most.
func (g *sharedEngine) of(ctx context.Context, chat string) (*engine, func(), error) {
	waiting, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	e, release, err := g.Of(waiting, chat)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		err = errors.Join(outbox.ErrUnavailable, err)
	}
	return e, release, err
}

// The requests of other nodes.
type (
	chatRequest struct {
		Chat    string `json:"chat"`
		Message string `json:"message,omitempty"` // for diff and changed
	}
	signalRequest struct {
		exec.Signal
		By string `json:"by"` // the actor
	}
	noticeRequest struct {
		User   string        `json:"user"`
		Device string        `json:"device,omitempty"` // for test
		Notice events.Notice `json:"notice"`           // for tell
	}
)

// Serve answers the requests of other nodes until ctx ends.
func (g *sharedEngine) Serve(ctx context.Context) error {
	return handlers.Commands{
		"diff":    handlers.QueryOf(g.diff),
		"todo":    handlers.QueryOf(g.todo),
		"changed": handlers.QueryOf(g.changed),
		"servers": handlers.QueryOf(g.servers),
		"open": handlers.QueryOf(func(ctx context.Context, r chatRequest) (any, error) {
			_, release, err := g.of(ctx, r.Chat)
			if err == nil {
				release()
			}
			return nil, err
		}),
		"signal": handlers.CommandOf(func(ctx context.Context, r signalRequest) (handlers.Accepted, error) {
			r.Actor = r.By
			seq, err := g.signal(ctx, r.Signal)
			return handlers.Accepted{Seq: seq}, err
		}),
		"tell": handlers.QueryOf(func(ctx context.Context, r noticeRequest) (any, error) {
			return nil, g.Push.SendNotice(ctx, r.User, r.Notice)
		}),
		"test": handlers.QueryOf(func(ctx context.Context, r noticeRequest) (any, error) {
			return nil, g.Push.Test(ctx, r.User, r.Device)
		}),
	}.ServeEngine(ctx, g.Conn, g.ID, g.Logger)
}

func (g *sharedEngine) diff(ctx context.Context, r chatRequest) (json.RawMessage, error) {
	e, release, err := g.of(ctx, r.Chat)
	if err != nil {
		return nil, err
	}
	defer release()
	return e.outbox.Diff(ctx, r.Chat, r.Message)
}

func (g *sharedEngine) todo(ctx context.Context, r chatRequest) (json.RawMessage, error) {
	e, release, err := g.of(ctx, r.Chat)
	if err != nil {
		return nil, err
	}
	defer release()
	return e.outbox.Todo(ctx, r.Chat)
}

func (g *sharedEngine) changed(ctx context.Context, r chatRequest) ([]string, error) {
	e, release, err := g.of(ctx, r.Chat)
	if err != nil {
		return nil, err
	}
	defer release()
	return e.outbox.Changed(ctx, r.Chat, r.Message)
}

func (g *sharedEngine) servers(ctx context.Context, r chatRequest) ([]string, error) {
	e, release, err := g.of(ctx, r.Chat)
	if err != nil {
		return nil, err
	}
	defer release()
	return e.exec.Servers(r.Chat), nil
}

func (g *sharedEngine) signal(ctx context.Context, c exec.Signal) (uint64, error) {
	e, release, err := g.OfExecution(ctx, c.Execution)
	if err != nil {
		return 0, err
	}
	defer release()
	return e.exec.Signal(ctx, c)
}

func (g *sharedEngine) send(ctx context.Context, name string, command any) (handlers.Accepted, error) {
	a, err := handlers.SendToEngine(ctx, g.Conn, g.ID, name, command)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(outbox.ErrUnavailable, err)
	}
	return a, err
}

// Chats returns the functions of the API that need OpenCode.
func (g *sharedEngine) Chats() routes.Engine {
	return routes.Engine{
		Open: func(ctx context.Context, chat string) {
			var err error
			if g.Leads() {
				var release func()
				if _, release, err = g.of(ctx, chat); err == nil {
					release()
				}
			} else {
				_, err = g.send(ctx, "open", chatRequest{Chat: chat})
			}
			if err != nil && ctx.Err() == nil {
				g.Logger.Warn("start the engine of a chat that was opened", "chat", chat, "err", err)
			}
		},
		Diff: func(ctx context.Context, chat, message string) (json.RawMessage, error) {
			if g.Leads() {
				return g.diff(ctx, chatRequest{chat, message})
			}
			a, err := g.send(ctx, "diff", chatRequest{chat, message})
			return a.Result, err
		},
		Todo: func(ctx context.Context, chat string) (json.RawMessage, error) {
			if g.Leads() {
				return g.todo(ctx, chatRequest{Chat: chat})
			}
			a, err := g.send(ctx, "todo", chatRequest{Chat: chat})
			return a.Result, err
		},
		Changed: func(ctx context.Context, chat, message string) (files []string, err error) {
			if g.Leads() {
				return g.changed(ctx, chatRequest{chat, message})
			}
			a, err := g.send(ctx, "changed", chatRequest{chat, message})
			if err != nil {
				return nil, err
			}
			err = json.Unmarshal(a.Result, &files)
			return files, err
		},
	}
}

// Signal sends a signal to a running command.
func (g *sharedEngine) Signal(ctx context.Context, c exec.Signal) (uint64, error) {
	if g.Leads() {
		return g.signal(ctx, c)
	}
	a, err := g.send(ctx, "signal", signalRequest{c, c.Actor})
	return a.Seq, err
}

// Dial connects to a port of a chat's commands. The connection goes over NATS to the worker.
func (g *sharedEngine) Dial(ctx context.Context, chat string, port int) (net.Conn, error) {
	if g.Leads() {
		e, release, err := g.of(ctx, chat)
		if err != nil {
			return nil, err
		}
		defer release()
		return e.exec.Dial(ctx, chat, port)
	}
	a, err := g.send(ctx, "servers", chatRequest{Chat: chat})
	if err != nil {
		return nil, err
	}
	var executions []string
	if err := json.Unmarshal(a.Result, &executions); err != nil {
		return nil, err
	}
	remote := exec.Executions{Conn: g.Conn, Pool: Pool, Workspace: g.Workspace(chat)}
	return remote.DialAny(ctx, executions, port)
}

// SendNotice sends a notice to an account's devices.
func (g *sharedEngine) SendNotice(ctx context.Context, user string, n events.Notice) error {
	if g.Leads() {
		return g.Push.SendNotice(ctx, user, n)
	}
	_, err := g.send(ctx, "tell", noticeRequest{User: user, Notice: n})
	return err
}

// Test sends a test notification to one device of an account.
func (g *sharedEngine) Test(ctx context.Context, user, device string) error {
	if g.Leads() {
		return g.Push.Test(ctx, user, device)
	}
	_, err := g.send(ctx, "test", noticeRequest{User: user, Device: device})
	return err
}
