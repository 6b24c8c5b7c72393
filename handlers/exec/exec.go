// Package exec runs commands in the sandbox. It checks that a command was authorized, passes it to a worker, and
// records the output and the result. A person's own shell needs no permission and is recorded in the same way.
//
// Promises: no command of the model runs unless that exact command, or the one by which a person replaced it, was
// authorized for its session, its call and its directory. No command is started twice. A command is refused if its
// approval has expired or its turn was aborted. A command that was accepted earlier still runs, even if it waits for a
// worker. Every execution that was requested gets one result, "lost" if it is unknown. Output takes constant memory.
// Secrets are removed from what is stored, not from what the model receives.
//
// It must not know OpenCode's HTTP API, nor how a worker isolates a process.
package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy/bash"
	"pocketcoder/sandbox/wire"
)

// Executions is the exec path between OpenCode's shell and the sandbox.
type Executions struct {
	Permissions *permission.Permissions // which authorize commands

	Log    *log.Log
	Conn   *nats.Conn
	Engine string
	Pool   string
	// absolute; the directory of chats without a session. Only sandbox workers of this workspace are asked. If it is
	// empty, any worker is asked
	Workspace string
	Session   func(id string) (permission.Session, bool) // returns a session whose requests are in the log
	Network   *network.Sandbox                           // nil for no network
	HasRoom   func() bool                                // reports whether large outputs may be stored; nil for always
	Logger    *slog.Logger

	// reports whether a chat belongs to Engine; nil if all do
	IsOwn func(ctx context.Context, chat string) (bool, error)

	// returns a sequence up to which each decision about a quarantined name is carried out; nil if that is not known
	Applied func(context.Context) (uint64, error)

	IdleAfter time.Duration                                        // ends background commands of idle chats; 0 for never
	HasTurn   func(ctx context.Context, chat string) (bool, error) // reports whether a turn runs; set if IdleAfter is

	running      runningExecutions
	keepRequests handlers.Folds[keepRequests] // one fold
	shares       shares
	finished     finishedQueue

	// tests replace the constants; 0 for maxOutput (in bytes), detachDelay, startDelay and reportEvery
	output                               int64
	detachDelay, startDelay, reportEvery time.Duration
}

// Run lets Exec carry out commands until ctx ends. Then it cancels the running commands, and records their results and
// the changes that it finds within lastChanges.
func (x *Executions) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	last, err := x.Log.Last(ctx)
	if err != nil {
		return err
	}
	others := make(chan error, 2)
	for _, work := range []func(context.Context) error{
		func(ctx context.Context) error { return x.endWithDeletedChats(ctx, last) }, x.applyDecisions,
	} {
		go func() { others <- work(ctx); cancel() }()
	}
	if x.IdleAfter > 0 {
		go x.endIdle(ctx)
	}
	finding, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	none, found := make(chan struct{}), make(chan struct{})
	go func() { x.findChanges(finding, none); close(found) }()
	x.running.open()
	<-ctx.Done()
	x.running.stop()
	x.running.group.Wait()
	close(none)
	defer time.AfterFunc(lastChanges, giveUp).Stop()
	<-found
	return errors.Join(<-others, <-others)
}

// recordTimeout limits the append of a result, which is independent of the context of the caller.
const recordTimeout = 30 * time.Second

// Exec carries out a command of the model, as pocketcoder-shell requests it. It waits until Run carries out commands.
// The end of ctx cancels the command.
func (x *Executions) Exec(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	if err := r.Validate(); err != nil {
		return refused("%v", err)
	}
	if !x.running.begin(ctx) {
		return refused("PocketCoder is stopping")
	}
	defer x.running.group.Done()
	return x.exec(ctx, r, stdout, stderr)
}

func (x *Executions) exec(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	session, ok := x.Session(r.Session)
	if !ok {
		x.Logger.Warn("exec refused", "session", r.Session, "call", r.Call, "err", "unknown session")
		return refused("session %q is not known", r.Session)
	}
	requested, owner, err := x.authorize(record, session, r)
	if err != nil {
		return x.refuse(session.Chat, r, err)
	}
	if requested.Original != "" {
		_, _ = io.WriteString(stdout, editNotice(requested))
	}
	run := x.newRun(session.Chat, owner, requested)
	if requested.Detached {
		return x.detach(ctx, run, stdout, stderr)
	}
	return x.runRecorded(ctx, run, stdout, stderr)
}

// editNotice returns a notice for the model about an edited command. It comes before the command's output and is not
// recorded.
func editNotice(d events.ExecRequested) string {
	return "[PocketCoder] A person changed this command before it ran.\n[PocketCoder] Asked for: " + d.Original +
		"\n[PocketCoder] Ran: " + d.Command + "\n"
}

// authorize appends exec.requested if a decision allows exactly this command, in this directory, for this session and
// call, and if the decision was not used yet.
func (x *Executions) authorize(ctx context.Context, session permission.Session,
	r wire.Request) (d events.ExecRequested, owner string, err error) {
	d = events.ExecRequested{Exec: events.NewID(), Session: r.Session, Call: r.Call, Pool: x.Pool}
	directory, _ := workspace.RealPath(session.Directory)
	f, c := x.Permissions.Chat(ctx, session.Chat), handlers.Command{Actor: events.EngineActor(x.Engine)}
	var files comparedFiles
	decide := func(s *permission.State) (events.Data, uint64, error) {
		owner = s.Owner
		if s.CommandRequest(r.Session, r.Call).Execution == d.Exec {
			return nil, 0, nil // an earlier try stored it, but the response was lost
		}
		outcome, err := authorized(s, r, time.Now())
		if errors.Is(err, errOtherCommand) && string(x.Log.Redactor().Bytes([]byte(r.Command))) == outcome.Decided.Command {
			err = errSecretCommand
		}
		if err != nil {
			return nil, 0, err
		}
		allowed := outcome.Decided
		d.Permission, d.Command, d.Original, d.Detached = allowed.Permission, r.Command, "", false
		if allowed.Edited != "" {
			d.Command, d.Original = allowed.Edited, r.Command
		}
		if rest, detached := bash.Detached(d.Command); detached {
			d.Command, d.Detached = rest, true
		}
		if d.Cwd, err = allowedCwd(*allowed, directory, r.Cwd); err != nil {
			return nil, 0, err
		}
		return d, 0, files.check(outcome)
	}
	err = recordRequest(ctx, func(try context.Context) (err error) {
		for {
			if files, err = x.compareFiles(try, f, directory, r); err == nil {
				_, err = f.ExecuteOne(try, x.Log, session.Chat, c, decide, permission.UseFilter(session.Chat))
			}
			if !errors.Is(err, errNotCompared) || try.Err() != nil {
				return err
			}
		}
	})
	return d, owner, err
}

// recordRequest appends exec.requested with appendOnce, and repeats that until the log answers or ctx ends. The log may
// have stored the event without an answer, so appendOnce must recognize it. ctx must not end with the caller: an
// execution that is stored and not known here would never have a result.
func recordRequest(ctx context.Context, appendOnce func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, authorizeTime) // a response that is lost with the connection never arrives
		err := appendOnce(try)
		cancel()
		if !isUnanswered(err) {
			return err
		}
		if sleep.For(ctx, authorizePause) != nil { // the server may be back before its streams are
			return err
		}
	}
}

// comparedFiles says which files of an approved command have changed since a decision.
type comparedFiles struct {
	decision uint64 // sequence
	changed  []string
}

// compareFiles compares the files of a command with those of its last decision. It reads up to 64 MiB, so it does not
// hold the fold of the chat, for which other decisions wait.
func (x *Executions) compareFiles(ctx context.Context, f *handlers.Fold[*permission.State], directory string,
	r wire.Request) (comparedFiles, error) {
	var outcome permission.Outcome
	err := f.Read(ctx, x.Log, func(s *permission.State) error {
		outcome = s.CommandRequest(r.Session, r.Call).Outcome
		return nil
	})
	cwd, _ := workspace.RealPath(r.Cwd) // allowedCwd refuses any other directory than that of the decision
	return comparedFiles{outcome.Seq, outcome.ChangedCommandFiles(directory, cwd)}, err
}

// errNotCompared means that a decision was made after the files were compared.
var errNotCompared = errors.New("the command was decided again")

// check refuses a command whose files differ from those of its decision.
func (c comparedFiles) check(outcome permission.Outcome) error {
	switch {
	case outcome.Seq != c.decision:
		return errNotCompared
	case len(c.changed) > 0:
		return handlers.Refuse(handlers.Conflict,
			"%s changed after the command was approved, so the command was not run. Ask again.", strings.Join(c.changed, ", "))
	}
	return nil
}

// The log may not answer when a request is to be recorded. The append is repeated for recordTimeout.
const (
	authorizeTime  = 10 * time.Second       // for one try
	authorizePause = 250 * time.Millisecond // between two tries
)

// isUnanswered reports whether the log did not answer. The event may be stored or not.
func isUnanswered(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, context.DeadlineExceeded)
}

// The reasons why a command differs from the approved one. The log holds [redacted] in place of a secret, so a command
// with a secret never equals its request.
var (
	errOtherCommand  = handlers.Refuse(handlers.Conflict, "the command is not the one that was authorized")
	errSecretCommand = handlers.Refuse(handlers.Conflict,
		"The command contains a secret of PocketCoder's, such as a key of the model provider. The request showed [redacted] in its place, and "+
			"only what was shown may run. Leave the secret out of the command.")
)

// authorized returns the decision that allows the request. A decision on a request that did not come from OpenCode
// allows nothing, because its author could have named any session and call.
func authorized(s *permission.State, r wire.Request, at time.Time) (outcome permission.Outcome, err error) {
	if s.Deleted != 0 {
		return outcome, handlers.Refuse(handlers.NotFound, "the chat was deleted")
	}
	request := s.CommandRequest(r.Session, r.Call)
	outcome = request.Outcome
	switch d := outcome.Decided; {
	case d == nil:
		return outcome, handlers.Refuse(handlers.NotFound, "no permission was decided for call %s of session %s", r.Call,
			r.Session)
	case d.Decision != events.Authorized:
		return outcome, handlers.Refuse(handlers.Conflict, "the command was denied by %s", outcome.By)
	case request.Execution != "":
		return outcome, handlers.Refuse(handlers.Conflict, "call %s was executed already, as %s", r.Call, request.Execution)
	case d.Command != r.Command:
		return outcome, errOtherCommand
	case request.Interrupted || s.LostAfter(r.Session, outcome.Seq):
		return outcome, handlers.Refuse(handlers.Conflict, "the turn in which the command was authorized was lost")
	}
	if why := s.WhyInvalid(outcome, at); why != "" {
		return outcome, handlers.Refuse(handlers.Conflict, "the command may not run any more: %s", why)
	}
	return outcome, nil
}

// allowedCwd returns the directory in which a command runs, symlinks resolved. It returns a refusal if that is not the
// authorized directory. An old decision without a directory is for the session's directory.
func allowedCwd(d events.PermissionDecided, directory, cwd string) (string, error) {
	allowed := cmp.Or(d.Cwd, directory)
	real, ok := workspace.RealPath(cwd)
	if !ok || real != allowed {
		return "", handlers.Refuse(handlers.Conflict, "the command was authorized to run in %s, not in %s", allowed, cwd)
	}
	return real, nil
}

func (x *Executions) refuse(chat string, r wire.Request, why error) wire.Result {
	// The time of the caller's context may be used up.
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	d := events.ExecRefused{Exec: events.NewID(), Session: r.Session, Call: r.Call, Command: r.Command, Cwd: r.Cwd,
		Reason: why.Error()}
	e, err := events.New(chat, events.EngineActor(x.Engine), d)
	if err == nil {
		_, err = x.Log.Append(ctx, e)
	}
	x.Logger.Warn("exec refused", "session", r.Session, "call", r.Call, "err", errors.Join(why, err))
	return refused("%v", why)
}

func refused(format string, args ...any) wire.Result {
	return wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: fmt.Sprintf(format, args...)}
}
