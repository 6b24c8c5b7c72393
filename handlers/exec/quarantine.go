package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/sandbox/protected"
	"pocketcoder/sandbox/wire"
)

// maxKeepCommand is how much of its command a request to keep a name shows, in bytes.
const maxKeepCommand = 512

// keepRequests holds the ids of all requests to keep a name. After a restart a worker reports a name again, which can
// be to another chat.
type keepRequests map[string]bool

func (k keepRequests) Apply(e events.Event) {
	if e.Actor != events.ActorSandbox {
		return
	}
	body, _ := events.Decode(e) // nil for one that cannot be decoded
	if d, _ := body.(events.PermissionRequested); d.Type == events.KindKeep {
		k[d.Permission] = true
	}
}

// reportEvery is how often the worker of a running execution is asked for the names that it has quarantined.
const reportEvery = 2 * time.Second

// requestWhileRunning asks the worker of a lasting execution every reportEvery for quarantined names until the
// execution has ended, and records a request for each.
func (x *Executions) requestWhileRunning(u *run) {
	select {
	case <-u.started:
	case <-u.closed:
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-u.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(cmp.Or(x.reportEvery, reportEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := x.requestReported(ctx, u); err != nil {
			x.Logger.Warn("record requests for quarantined names", "exec", u.requested.Exec, "err", err)
		}
	}
}

// requestReported asks the worker once. It records a report that arrives after ctx has ended, because the result of the
// execution does not repeat its names.
func (x *Executions) requestReported(ctx context.Context, u *run) error {
	r := wire.Request{Op: wire.Report, Exec: u.requested.Exec, Workspace: x.Workspace}
	result, err := wire.Call(ctx, x.Conn, wire.RunSubject(x.Pool), r, io.Discard, io.Discard)
	switch {
	case ctx.Err() != nil || errors.Is(err, wire.ErrNoWorker): // it has ended
		err = nil
	case err == nil && result.Reason != wire.Exited:
		err = fmt.Errorf("%s %s", result.Reason, result.Error)
	}
	return errors.Join(err, x.recordRequests(ctx, u, result.Quarantined))
}

// recordRequests records a request for each reported name that has none, and adds these names to the result of the
// execution. It tries again with names whose requests could not be recorded before.
func (x *Executions) recordRequests(ctx context.Context, u *run, reported []wire.Quarantined) error {
	u.reported = append(u.reported, reported...)
	if len(u.reported) == 0 {
		return nil
	}
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	wasRead := false
	record := func(known keepRequests) error {
		wasRead = true
		list, requests := requestsToKeep(u.requested, u.reported, known)
		if err := x.record(ctx, u.chat, requests...); err != nil {
			return err
		}
		for _, q := range list {
			known[q.Permission] = true // the log may return its own event later
		}
		u.quarantined, u.reported = append(u.quarantined, list...), nil
		return nil
	}
	filter := events.ChatSubject("*", events.PermissionRequested{}.Kind())
	err := x.keepRequests.Get(ctx, "", func() *handlers.Fold[keepRequests] {
		return handlers.NewFold(keepRequests{}, filter)
	}).Read(reading, x.Log, record)
	if wasRead {
		return err
	}
	x.Logger.Warn("read the requests to keep a name", "exec", u.requested.Exec, "err", err)
	return record(keepRequests{})
}

// requestsToKeep returns the names that a worker has moved into its quarantine while an execution ran, and a permission
// request for each name. It leaves out the names that have a request.
func requestsToKeep(d events.ExecRequested, all []wire.Quarantined, known keepRequests) (list []events.Quarantined,
	requests []events.Data) {
	for _, q := range all {
		id := events.KeepRequestID(q.ID)
		if known[id] || slices.ContainsFunc(list, func(n events.Quarantined) bool { return n.Permission == id }) {
			continue
		}
		about := events.KeepMetadata{
			Quarantined: events.Quarantined{Item: q.ID, Name: q.Name, Kind: string(q.Kind), Bytes: q.Bytes, Files: q.Files},
			Exec:        d.Exec, Command: display.Cut(d.Command, maxKeepCommand), Text: q.Text, Cut: q.Cut,
		}
		if d.Private {
			about.Text, about.Cut = "", q.Cut || q.Text != ""
		}
		named := about.Quarantined
		named.Permission = id
		list = append(list, named)
		requests = append(requests, events.PermissionRequested{
			Permission: named.Permission, Type: events.KindKeep, Patterns: []string{q.Name},
			Metadata: events.MustEncode(about), Session: d.Session, Message: "A command created " + q.Name + ". Keep it?",
		})
	}
	return list, requests
}

// keepConsumer is the name of the durable consumer of applyDecisions, of the first engine.
const keepConsumer = "keep-decisions"

// applyDecisions carries out people's decisions about quarantined names, until ctx ends. A decision that was carried
// out before a crash is carried out again, which changes nothing.
func (x *Executions) applyDecisions(ctx context.Context) error {
	decisions := events.ChatSubject("*", events.PermissionDecided{}.Kind())
	name := chats.EngineConsumer(keepConsumer, x.Engine)
	err := x.Log.ConsumeByChat(log.ConsumeAfter(ctx, x.Applied), name, decisions, x.applyDecision,
		func(e events.Event, err error) {
			x.Logger.Warn("carry out a decision about a quarantined name", "chat", e.Subject.ID, "seq", e.Seq, "err", err)
		})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("carry out decisions about quarantined names: %w", err)
}

func (x *Executions) applyDecision(ctx context.Context, e events.Event) error {
	body, _ := events.Decode(e) // nil for one that cannot be decoded
	d, _ := body.(events.PermissionDecided)
	if d.Type != events.KindKeep || !e.IsOfPerson() {
		return nil
	}
	chat := e.Subject.ID
	if x.IsOwn != nil {
		if own, err := x.IsOwn(ctx, chat); err != nil || !own {
			return err
		}
	}
	var r permission.Request
	err := x.Permissions.Chat(ctx, chat).Read(ctx, x.Log, func(s *permission.State) error {
		r = s.Request(d.Permission)
		return nil
	})
	switch {
	case err != nil:
		return err
	case r.Pending():
		return fmt.Errorf("the decision about %s is not there yet", d.Permission)
	case r.Item == "" || r.Answered || r.Outcome.Seq != e.Seq:
		return nil
	}
	op := wire.Dismiss
	if d.Decision == events.Authorized {
		op = wire.Keep
	}
	applied := events.PermissionApplied{Permission: r.ID}
	if applied.Error, err = x.release(ctx, wire.Request{Op: op, Item: r.Item, Workspace: x.Workspace}); err != nil {
		return err
	}
	return x.record(ctx, chat, applied)
}

// release sends an operation on a quarantined name to a worker. It returns why the worker refused it.
func (x *Executions) release(ctx context.Context, r wire.Request) (refusal string, err error) {
	result, err := wire.Call(ctx, x.Conn, wire.RunSubject(x.Pool), r, io.Discard, io.Discard)
	if err == nil && result.Reason != wire.Exited && result.Reason != wire.Refused {
		err = fmt.Errorf("%s %s", result.Reason, result.Error)
	}
	return result.Error, err
}

// isProtected reports whether a worker may protect a name in the top folder.
func isProtected(name string) bool {
	all := slices.Concat(protected.Project, protected.Instructions, protected.Home)
	return slices.ContainsFunc(all, func(p string) bool { return strings.EqualFold(p, name) })
}

// expectTimeout limits how long OpenCode waits before it carries out an edit.
const expectTimeout = time.Second

// ExpectEdit says that OpenCode is about to carry out an allowed edit of a session that works in a directory. The
// protected names that it creates or changes in the top folder of the workspace then stay so, although a command runs.
func (x *Executions) ExpectEdit(ctx context.Context, a events.PermissionRequest, directory string) {
	ctx, cancel := context.WithTimeout(ctx, expectTimeout)
	defer cancel()
	root, _ := workspace.RealPath(x.Workspace)
	about := a.About()
	for _, path := range append(about.Patched(), about.File()) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(directory, path)
		}
		real, _ := workspace.RealPath(path)
		inside, found := strings.CutPrefix(real, root+"/")
		name, _, _ := strings.Cut(inside, "/")
		if !found || !isProtected(name) {
			continue
		}
		r := wire.Request{Op: wire.Expect, Path: name, Workspace: x.Workspace}
		result, err := wire.Call(ctx, x.Conn, wire.RunSubject(x.Pool), r, io.Discard, io.Discard)
		if err != nil || result.Reason != wire.Exited {
			x.Logger.Warn("a worker may move a file of an edit out of the workspace", "name", name,
				"err", cmp.Or(err, errors.New(result.Error)))
		}
	}
}
