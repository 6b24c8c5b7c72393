package exec

import (
	"context"
	"errors"
	"io"

	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/sandbox/wire"
)

// PrivateShell is a shell whose output and changed files are not recorded. The log records that it ran, where and how
// it ended, and its network requests, connections and signals.
const PrivateShell = "private"

// MayAct reports whether an account exists, may log in at a terminal, and may act in a chat.
type MayAct func(ctx context.Context, account string, chat handlers.ChatState) (bool, error)

// ServeShells opens shells of people until ctx ends. A shell is requested with a wire.Call on wire.PersonSubject:
// Session is the chat, Terminal the window, Account the owner of the shell, and Call is PrivateShell or empty. Other
// fields are ignored. A shell runs in the chat's directory, isolated like the model's commands. It is recorded in the
// name of the account, or of operator if there is no account. The web server has checked who asks.
// executionsOf returns those of the engine of a chat, which does not stop until release is called.
func ServeShells(ctx context.Context, nc *nats.Conn, operator string, may MayAct,
	executionsOf func(ctx context.Context, chat string) (x *Executions, release func(), err error)) error {
	return wire.Serve(ctx, nc, wire.PersonSubject, wire.Server{Queue: "handlers",
		Handle: func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
			x, release, err := executionsOf(ctx, r.Session)
			if err != nil {
				return refused("%v", err)
			}
			defer release()
			return x.shell(ctx, operator, may, r, stdout, stderr)
		}})
}

func (x *Executions) shell(ctx context.Context, operator string, may MayAct, r wire.Request, stdout,
	stderr io.Writer) wire.Result {
	if r.Terminal == nil || r.Call != "" && r.Call != PrivateShell {
		return refused("want a terminal, and %q or nothing", PrivateShell)
	}
	actor := operator
	if r.Account != "" {
		actor = events.UserActor(r.Account)
	}
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	d, owner, err := x.requestShell(record, actor, r.Session, r.Call == PrivateShell, func(chat handlers.ChatState) error {
		if r.Account == "" {
			return nil
		}
		ok, err := may(ctx, r.Account, chat)
		if err == nil && !ok {
			err = handlers.Refuse(handlers.NotFound, "Account %q may not open a shell in chat %s.", r.Account,
				r.Session)
		}
		return err
	})
	if err != nil {
		if !errors.As(err, new(handlers.Refused)) {
			x.Logger.Error("open a person's shell", "chat", r.Session, "err", err)
		}
		return refused("%v", err)
	}
	u := x.newRun(r.Session, owner, d)
	u.request.Terminal = r.Terminal
	go func() {
		for in := range r.Input { // closed when the session ends
			if u.sendInput(ctx, in) != nil {
				return
			}
		}
	}()
	return x.runRecorded(ctx, u, stdout, stderr)
}

// shellState is the state of a chat that decides whether and where a shell opens.
type shellState struct {
	handlers.ChatState
	directory string // of the chat's own session
	exec      string // of the shell
	requested bool   // exec.requested of the shell is stored
}

func (s *shellState) Apply(e events.Event) {
	s.ChatState.Apply(e)
	switch d, _ := events.Decode(e); d := d.(type) { // nil for one that cannot be decoded
	case events.SessionBound:
		s.directory = d.Directory
	case events.ExecRequested:
		s.requested = s.requested || d.Exec == s.exec
	}
}

// requestShell appends exec.requested for a person's shell in a chat, unless may returns an error for it.
func (x *Executions) requestShell(ctx context.Context, actor, chat string, private bool,
	may func(handlers.ChatState) error) (d events.ExecRequested, owner string, err error) {
	d = events.ExecRequested{Exec: events.NewID(), Pool: x.Pool, Terminal: true, Private: private}
	if _, err := events.ParseID(chat); err != nil {
		return d, "", handlers.Refuse(handlers.Invalid, "chat: %v", err)
	}
	f := handlers.NewFold(&shellState{directory: x.Workspace, exec: d.Exec},
		events.ChatSubject(chat, d.Kind()), handlers.ChatFilter(chat), events.ChatSubject(chat, events.SessionBound{}.Kind()))
	decide := func(s *shellState) (events.Data, uint64, error) {
		owner = s.Owner
		if s.requested {
			return nil, 0, nil // an earlier try stored it, but the response was lost
		}
		if err := s.Missing(chat); err != nil {
			return nil, 0, err
		}
		if err := may(s.ChatState); err != nil {
			return nil, 0, err
		}
		var ok bool
		if d.Cwd, ok = workspace.RealPath(s.directory); !ok {
			return nil, 0, handlers.Refuse(handlers.Conflict, "the directory of the chat, %q, does not exist", s.directory)
		}
		return d, 0, nil
	}
	err = recordRequest(ctx, func(try context.Context) error {
		_, err := f.ExecuteOne(try, x.Log, chat, handlers.Command{Actor: actor}, decide)
		return err
	})
	return d, owner, err
}
