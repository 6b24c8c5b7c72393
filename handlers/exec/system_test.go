package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// system is the path of a command: shell, handlers and worker as separate NATS identities, with the shipped
// configuration. Session ses_1 belongs to chat c1.
type system struct {
	*permissiontest.Handlers
	exec      *Executions
	t         testing.TB
	server    *natsconf.Server
	url       string
	keys      natsconf.Keys
	workspace string
	stop      func()       // of the exec path
	started   atomic.Int64 // commands that the worker received
	calls     int
}

// newSystem returns a system without a worker.
func newSystem(t testing.TB) *system {
	t.Helper()
	return newSystemIn(t, expect.MemoryDir(t))
}

// newSystemIn is newSystem with the directory of the log.
func newSystemIn(t testing.TB, store string) *system {
	t.Helper()
	is := is.New(t)
	workspace, err := filepath.EvalSymlinks(expect.MemoryDir(t))
	is.NoErr(err)
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.NoErr(err)
	server, err := natsconf.Start(t.Context(), natsconf.Config{
		Name: "test", Listen: "127.0.0.1:0", StoreDir: store, Keys: keys.Public, Pools: []string{"local"},
	})
	is.NoErr(err)
	t.Cleanup(server.Close)
	s := &system{t: t, server: server, url: server.ClientURL(), keys: keys, workspace: workspace}
	s.Handlers = permissiontest.New(eventstest.Open(t, s.connect(natsconf.Core), handlerstest.Canary))
	_, _, err = s.Chats.Create(t.Context(), chat.Create{Chat: "c1"})
	is.NoErr(err)
	s.exec = &Executions{
		Permissions: s.Permissions, Log: s.Log, Conn: s.connect(natsconf.Core), Engine: "local", Pool: "local", Workspace: workspace, Logger: handlerstest.Quiet(),
		Session: func(id string) (permission.Session, bool) {
			return permission.Session{Chat: "c1", Directory: workspace}, id == "ses_1"
		},
		startDelay: time.Hour, // so that the speed of the machine does not change what is recorded
	}
	s.stop = s.background(s.exec.Run)
	return s
}

func (s *system) connect(id natsconf.Identity) *nats.Conn {
	s.t.Helper()
	is := is.New(s.t)
	opts, err := s.keys.Options(id, "test")
	is.NoErr(err)
	nc, err := nats.Connect(s.url, opts...)
	is.NoErr(err)
	s.t.Cleanup(nc.Close)
	return nc
}

// run serves on nc until the test ends or stop is called. It returns when the subscription exists.
func (s *system) run(nc *nats.Conn, serve func(context.Context) error) (stop func()) {
	s.t.Helper()
	stop = s.background(func(ctx context.Context) error {
		err := serve(ctx)
		if nc.IsClosed() {
			return nil
		}
		return err
	})
	for nc.NumSubscriptions() == 0 {
		is.New(s.t).NoErr(nc.Flush())
	}
	is.New(s.t).NoErr(nc.Flush())
	return stop
}

// background runs a function until the test ends or stop is called.
func (s *system) background(run func(context.Context) error) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			s.t.Errorf("it did not end well: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// withWorker returns a system with a worker in this process, and the worker's connection.
func withWorker(t testing.TB, change ...func(*sandbox.Config)) (*system, *nats.Conn) {
	t.Helper()
	s := newSystem(t)
	return s, s.serveWorker(change...)
}

// serveWorker adds a worker in this process, and returns its connection.
func (s *system) serveWorker(change ...func(*sandbox.Config)) *nats.Conn {
	t := s.t
	t.Helper()
	config := sandbox.Config{Isolation: isolation.Choice{Level: isolation.None}, Workspace: s.workspace,
		Home: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&config)
	}
	w, err := sandbox.Open(config)
	is.New(t).NoErr(err)
	t.Cleanup(w.Close)
	nc := s.connect(natsconf.Worker)
	s.run(nc, func(ctx context.Context) error {
		return wire.Serve(ctx, nc, wire.RunSubject("local"), wire.Server{
			Info: wire.WorkerInfo{Name: "here", Isolation: "none", Workspace: s.workspace}, Serves: w.Serves,
			Handle: func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
				if r.Op == wire.Run {
					s.started.Add(1)
				}
				return w.Handle(ctx, r, stdout, stderr)
			},
		})
	})
	return nc
}

// withWorkerProcess returns a system with a worker in another process.
func withWorkerProcess(t testing.TB) (*system, *exec.Cmd) {
	t.Helper()
	s := newSystem(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HANDLERS_TEST_WORKER="+s.url, "HANDLERS_TEST_KEYS="+s.keys.Dir,
		"HANDLERS_TEST_WORKSPACE="+s.workspace)
	cmd.Stderr = os.Stderr
	is.New(t).NoErr(cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return s, cmd
}

// request returns a request for a command in a new call.
func (s *system) request(command string) wire.Request {
	s.calls++
	return wire.Request{Session: "ses_1", Call: fmt.Sprint("call_per_", s.calls), Command: command, Cwd: s.workspace}
}

// authorized returns a request that a person has approved.
func (s *system) authorized(command string) wire.Request {
	s.t.Helper()
	return s.approved(command, s.workspace, permission.Decide{})
}

// approved returns a request for a command in a directory, which a person has approved with c.
func (s *system) approved(command, cwd string, c permission.Decide) wire.Request {
	s.t.Helper()
	r := s.request(command)
	r.Cwd = cwd
	id := r.Call[len("call_"):]
	handlerstest.Happened(s.t, s.Log, "c1", handlerstest.Bash(id, command),
		handlerstest.Fact{By: events.ActorPolicy, Data: events.PermissionReferred{Permission: id, Cwd: cwd,
			Files: workspace.CommandFingerprints(command, s.workspace, cwd)}})
	c.Actor, c.Chat, c.Permission, c.Decision = handlerstest.Alice, "c1", id, events.Authorized
	gate := permission.Gate{Permissions: s.Permissions, Session: func(string) (permission.Session, bool) {
		return permission.Session{Chat: "c1", Directory: s.workspace}, true
	}}
	_, err := gate.Decide(s.t.Context(), c)
	is.New(s.t).NoErr(err)
	return r
}

// shell runs a command as pocketcoder-shell does.
func (s *system) shell(ctx context.Context, r wire.Request) (result wire.Result, stdout, stderr string) {
	s.t.Helper()
	var out, err bytes.Buffer
	result = s.exec.Exec(ctx, r, &out, &err)
	return result, out.String(), err.String()
}

// finished waits for the result of the only execution, or of the named one.
func (s *system) finished(exec ...string) events.ExecFinished {
	s.t.Helper()
	_, d := handlerstest.Await(s.t, s.Log, func(d events.ExecFinished) bool { return len(exec) == 0 || d.Exec == exec[0] })
	return d
}

// execOf waits for the execution of a call and returns its id.
func (s *system) execOf(call string) string {
	s.t.Helper()
	_, d := handlerstest.Await(s.t, s.Log, func(d events.ExecRequested) bool { return d.Call == call })
	return d.Exec
}

// output returns the recorded bytes of a stream.
func (s *system) output(o events.Output) []byte {
	s.t.Helper()
	is := is.New(s.t)
	switch {
	case o.Blob != nil:
		r, err := s.Log.Blobs.Open(s.t.Context(), o.Blob.Name)
		is.NoErr(err)
		defer r.Close()
		all, err := io.ReadAll(r)
		is.NoErr(err)
		return all
	case o.Base64 != nil:
		return o.Base64
	}
	return []byte(o.Text)
}

// lineWriter sends the first written line to the channel. It never blocks.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	select {
	case w <- string(bytes.TrimSpace(p)):
	default:
	}
	return len(p), nil
}

// touch creates an empty file in the workspace.
func (s *system) touch(name string) (string, error) {
	path := filepath.Join(s.workspace, name)
	return path, os.WriteFile(path, nil, 0o600)
}
