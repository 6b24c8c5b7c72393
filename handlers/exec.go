package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/sandbox/wire"
)

// Exec is the exec path between OpenCode's shell and the sandbox: it lets through what was authorized, and records what
// came of it.
type Exec struct {
	Handlers *Handlers
	Conn     *nats.Conn
	Engine   string
	Pool     string
	Session  func(id string) (Session, bool) // of a session whose asks are in the log
	Log      *slog.Logger

	chats *folds
}

// Run answers exec.request.<engine> until ctx ends; commands that run then are cancelled, and their results recorded.
func (x Exec) Run(ctx context.Context) error {
	x.chats = &folds{}
	return wire.Serve(ctx, x.Conn, wire.RequestSubject(x.Engine), "handlers", x.exec)
}

// recordTimeout bounds the append of a result, which must succeed even when everybody who waited for it is gone.
const recordTimeout = 30 * time.Second

func (x Exec) exec(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	session, ok := x.Session(r.Session)
	if !ok {
		x.Log.Warn("exec refused", "session", r.Session, "call", r.Call, "err", "unknown session")
		return refused("session %q is not known", r.Session)
	}
	requested, err := x.authorize(record, session.Chat, r)
	if err != nil {
		return x.refuse(record, session.Chat, r, err)
	}
	r.Exec, r.Workspace = requested.Exec, ""
	out := newRecorder(x.Handlers.Log, session.Chat, r.Exec)
	result := x.forward(ctx, r, out.tee("stdout", stdout), out.tee("stderr", stderr))
	if err := x.finish(ctx, session.Chat, out.finish(result)); err != nil {
		x.Log.Error("record exec", "exec", r.Exec, "err", err)
	}
	return result
}

// execState is what the gate knows of a chat's commands: decisions, and what has been started on them.
type execState struct {
	permissions
	started map[string]string // call -> exec
}

func (s *execState) apply(e events.Event) {
	s.permissions.apply(e)
	if d, err := events.Decode(e); err == nil {
		if r, ok := d.(events.ExecRequested); ok {
			s.started[r.Session+"/"+r.Call] = r.Exec
		}
	}
}

// authorize records exec.requested if a decision allows exactly this command for this session and call, and nothing
// was started on it yet.
func (x Exec) authorize(ctx context.Context, chat string, r wire.Request) (events.ExecRequested, error) {
	d := events.ExecRequested{Exec: events.NewID(), Session: r.Session, Call: r.Call, Command: r.Command, Cwd: r.Cwd, Pool: x.Pool}
	f := x.chats.get(ctx, chat, func() *folded {
		s := &execState{*newPermissions(), map[string]string{}}
		return fold(s, []string{events.ChatSubject(chat, d.Kind()), permissionFilters(chat)[0], chatFilter(chat)})
	})
	s := f.state.(*execState)
	_, err := x.Handlers.handleOn(ctx, chat, Command{Actor: events.EngineActor(x.Engine)}, f, func() (events.Data, uint64, error) {
		if exec, ok := s.started[r.Session+"/"+r.Call]; ok {
			return nil, 0, refuse(Conflict, "call %s was executed already, as %s", r.Call, exec)
		}
		var err error
		d.Permission, err = s.authorized(r)
		return d, 0, err
	})
	return d, err
}

// authorized finds the decision that allows the request. One on an ask that did not come from OpenCode allows none: whoever
// asked could have named any session and call.
func (s *execState) authorized(r wire.Request) (permission string, err error) {
	if s.deleted != 0 {
		return "", refuse(NotFound, "the chat was deleted")
	}
	err = refuse(NotFound, "no permission was decided for call %s of session %s", r.Call, r.Session)
	for id, how := range s.settled {
		d := how.decided
		switch {
		case s.intended(id) || d == nil || d.Type != "bash" || d.Session != r.Session || d.Call != r.Call:
		case d.Decision != events.Authorized:
			err = refuse(Conflict, "the command was denied by %s", how.by)
		case d.Command != r.Command:
			err = refuse(Conflict, "the command is not the one that was authorized")
		default:
			return id, nil
		}
	}
	return "", err
}

func (x Exec) refuse(ctx context.Context, chat string, r wire.Request, why error) wire.Result {
	d := events.ExecRefused{Exec: events.NewID(), Session: r.Session, Call: r.Call, Command: r.Command, Cwd: r.Cwd, Reason: why.Error()}
	e, err := events.New(chat, events.EngineActor(x.Engine), d)
	if err == nil {
		_, err = x.Handlers.Log.Append(ctx, e)
	}
	x.Log.Warn("exec refused", "session", r.Session, "call", r.Call, "err", errors.Join(why, err))
	return refused("%v", why)
}

func refused(format string, args ...any) wire.Result {
	return wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: fmt.Sprintf(format, args...)}
}

// Tries to find a worker: one that is being restarted is back within that time. Nothing has run before it answers.
const (
	workerTries = 6
	workerPause = 100 * time.Millisecond // doubled each time: 3 s in all
)

func (x Exec) forward(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	subject, pause := wire.RunSubject(x.Pool), workerPause
	for try := 1; ; try++ {
		result, err := wire.Call(ctx, x.Conn, subject, r, stdout, stderr)
		switch {
		case err == nil:
			return result
		case !errors.Is(err, wire.ErrNoWorker): // and it certainly was not run
			x.Log.Error("exec", "exec", r.Exec, "err", err)
			return refused("the command was not run: %v", err)
		case try == workerTries || ctx.Err() != nil:
			return refused("no sandbox worker answers in pool %q", x.Pool)
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
		}
	}
}

// finish records a result, whoever still waits for it.
func (x Exec) finish(ctx context.Context, chat string, d events.ExecFinished) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	e, err := events.New(chat, events.ActorSandbox, d)
	if err != nil {
		return err
	}
	_, err = x.Handlers.Log.Append(ctx, e)
	return err
}

// Lost records that nobody knows what came of an execution: it was running when its handler or its worker died.
func (x Exec) Lost(ctx context.Context, chat, exec string) error {
	return x.finish(ctx, chat, events.ExecFinished{
		Exec: exec, ExitCode: wire.ExitLost, Reason: string(wire.Lost), Error: "the system stopped while the command was running",
	})
}
