package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/run"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/shellsocket"
	"pocketcoder/bridge/push"
	"pocketcoder/bridge/push/service"
	"pocketcoder/bridge/ssh"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/natsconf"
	"pocketcoder/projections"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web"
)

// newSystem opens the foundations of a system in order. It closes what it has opened if it returns an error.
//
//	browser ─▶ http ─────────▶ handlers ─▶ log (NATS) ─▶ model (SQLite) ─▶ http, cmd
//	            OpenCode ◀─▶ bridge ─▲       │
//	               └─ pocketcoder-shell ─▶ exec ─▶ worker (child process)
func newSystem(ctx context.Context, o upOptions) (_ *parts, err error) {
	s := &parts{o: o, say: newProgress(o.stderr)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	release, err := o.data.open()
	if err != nil {
		return nil, err
	}
	s.closes(release)
	if s.listener, err = net.Listen("tcp", o.http); err != nil {
		return nil, fmt.Errorf("open web server on %s: %w; choose another with --http", o.http, err)
	}
	s.closes(func() { s.listener.Close() })
	if s.leaving, err = openEgress(o); err != nil {
		return nil, err
	}
	s.closes(func() { s.leaving.Close() })
	if s.confined, err = isolation.Choose(o.isolation); err != nil {
		return nil, fmt.Errorf("isolate OpenCode: %w", err)
	}
	if s.shells, err = openShells(o, s.confined); err != nil {
		return nil, err
	}
	s.closes(func() { s.shells.Close() })
	stopViewer(o.data) // a crash leaves it
	if s.ssh, err = openSSH(ctx, o, s.say); err != nil {
		return nil, err
	}
	s.closes(func() { s.ssh.Close() })
	if err := s.openLog(ctx); err != nil {
		return nil, err
	}
	if err := s.openAccounts(ctx); err != nil {
		return nil, err
	}
	if s.vapid, err = service.LoadVAPID(o.data.path("keys", "webpush.json")); err != nil {
		return nil, err
	}
	s.log.Conceal("push", s.vapid.Private, o.relay.Secret)
	s.reached, s.ports = o.reached(s.listener.Addr().String()), o.portTemplate(s.listener.Addr().String())
	s.wire()
	return s, nil
}

// openLog opens NATS, the log, what answers for the model provider, and the read model.
func (s *parts) openLog(ctx context.Context) (err error) {
	if s.keys, err = natsconf.LoadKeys(s.o.data.path("keys")); err != nil {
		return err
	}
	connected, err := openNATS(ctx, s.o, s.keys)
	if err != nil {
		return err
	}
	s.closes(connected.Close)
	s.nc, s.url = connected.Conn, connected.url
	s.disk = &logDisk{data: s.o.data, server: connected.server, logger: s.o.logger}
	var closeModel func()
	if s.provider, s.isDemo, closeModel, err = openProvider(ctx, s.o.getenv, s.o.model); err != nil {
		return err
	}
	s.closes(closeModel)
	streams := streamOptions(s.o)
	streams.Refuse = s.disk.refusal
	if s.log, err = log.Open(ctx, s.nc, streams, secret.NewRedactor(s.provider.Secrets()...)); err != nil {
		return err
	}
	s.disk.opened = s.log.Reopened
	last, err := s.log.Last(ctx)
	if err != nil {
		return err
	}
	s.say.done("log", "NATS at %s, %d events", s.url, last)
	if s.model, err = projections.Open(ctx, string(s.o.data), s.log); err != nil {
		return err
	}
	s.closes(func() { s.model.Close() })
	if aside := s.model.SetAside(); aside != "" {
		s.say.note("read model", "%s", aside)
	}
	return nil
}

// closes adds a function that close calls, before those that were added earlier.
func (s *parts) closes(fn func()) { s.closers = append(s.closers, fn) }

// close closes the foundations, the newest first.
func (s *parts) close() {
	for _, fn := range slices.Backward(s.closers) {
		fn()
	}
	s.closers = nil
}

// run runs the actors until one of them ends, a signal comes or ctx ends, and then closes the foundations. It calls ready once
// everything works.
func (s *parts) run(ctx context.Context, ready func(running)) error {
	defer s.close()
	r := running{
		PID: os.Getpid(), Started: time.Now().UTC(), Version: version(), NATS: s.url, HTTP: "http://" + s.listener.Addr().String(), Workspace: s.o.workspace,
	}
	if err := s.o.data.announce(r); err != nil {
		return err
	}
	return s.runActors(ctx, func() {
		s.say.ready(r, s)
		s.offerSetup(ctx)
		ready(r)
	})
}

// shellListener is where pocketcoder-shell asks for commands.
type shellListener struct {
	net.Listener
	address, secret string
}

// openShells listens for pocketcoder-shell. At the levels without mounts of their own OpenCode gets no Unix sockets, because
// they would lead to the machine's, and uses TCP with a secret.
func openShells(o upOptions, confined isolation.Found) (s shellListener, err error) {
	if confined.Level != isolation.Landlock && confined.Level != isolation.Container {
		s.address = shellsocket.Unix + o.data.shellSocket()
		s.Listener, err = opencode.ListenForShells(o.data.shellSocket())
		return s, err
	}
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return s, fmt.Errorf("listen for pocketcoder-shell: %w", err)
	}
	_, port, _ := net.SplitHostPort(s.Addr().String())
	s.secret = rand.Text()
	s.address = shellsocket.TCP + port + "/" + s.secret
	return s, nil
}

// parts is everything that runs, wired.
type parts struct {
	o        upOptions
	closers  []func()     // of the foundations, in the order in which they were opened
	listener net.Listener // of the web server
	say      *progress
	keys     natsconf.Keys
	url      string
	nc       *nats.Conn
	disk     *logDisk
	log      *log.Log
	model    *projections.Model
	secrets  *secret.Store
	accounts *account.Accounts
	provider opencode.Provider
	isDemo   bool
	vapid    service.VAPID
	reached  string       // the URL under which people reach the web server
	ports    string       // template of the URLs of ports
	leaving  net.Listener // of the proxy through which commands reach hosts
	shells   shellListener

	handlers *handlers.Handlers
	bridge   *opencode.Bridge
	gate     handlers.Gate
	exec     *handlers.Exec
	engine   *opencode.Supervisor
	outside  *handlers.EngineNetwork // what OpenCode itself reaches
	confined isolation.Found         // how OpenCode is isolated
	lives    lives
	worker   *workerProcess
	web      *web.Server
	push     *push.Push
	ssh      *ssh.Server   // nil without --ssh
	loaded   chan struct{} // closed once the read model has caught up and the bridge knows its sessions
	changed  chan struct{} // a part's state may have changed
}

func (s *parts) wire() {
	s.changed, s.loaded = make(chan struct{}, 1), make(chan struct{})
	s.handlers = &handlers.Handlers{Log: s.log}
	s.bridge = &opencode.Bridge{
		Engine: engine, Directory: s.o.workspace, Log: s.log, Model: s.model, Handlers: s.handlers, Logger: s.o.logger,
		Client: s.lives.client, Default: s.provider.Model, MaxTurns: s.o.maxTurns, RetryAfter: opencode.DefaultRetryAfter, Changed: s.change,
	}
	s.handlers.Configured = s.bridge.Configured
	s.exec = &handlers.Exec{
		Handlers: s.handlers, Conn: s.nc, Engine: engine, Pool: pool, Workspace: s.o.workspace, Session: s.bridge.Session, Log: s.o.logger,
	}
	s.engine = &opencode.Supervisor{
		Dir: s.o.data.path("opencode"), Workspace: s.o.workspace, Provider: s.provider, Logger: s.o.logger, Launcher: launcher,
		ShellAddress: s.shells.address, Isolation: s.confined,
		Started: s.lives.started, Changed: s.change, Expose: s.o.expose,
		Conceal: func(password string) { s.log.Conceal("opencode", password) },
		Proxy:   func() *url.URL { return s.outside.Renew() }, Allow: func(hosts []string) { s.outside.Allow(hosts) },
	}
	s.gate = handlers.Gate{
		Handlers: s.handlers, Rules: s.o.rules, Workspace: s.o.workspace, Session: s.bridge.Session, Call: askedCall(s.model), Log: s.o.logger,
		Network: s.o.sandboxNetwork(), Visible: s.engine.Visible(),
	}
	s.worker = &workerProcess{
		args: []string{
			"--nats", s.url, "--key", s.keys.SeedFile(natsconf.Worker), "--pool", pool,
			"--workspace", s.o.workspace, "--home", s.o.data.path("home"), "--isolation", s.o.isolation,
		},
		stderr: s.o.stderr, logger: s.o.logger, changed: s.change, ready: s.sayWalls,
	}
	s.worker.args = append(s.worker.args, s.o.limits.args()...)
	for _, dir := range s.o.expose {
		s.worker.args = append(s.worker.args, "--expose", dir)
	}
	s.web = web.New(web.Options{
		Log: s.log, Tail: log.NewTail(s.log), Model: s.model, Handlers: s.handlers, Gate: s.gate, Accounts: s.accounts, Secrets: s.secrets,
		Engine: askedOpenCode(s.bridge), Signal: s.exec.Signal, Dial: s.exec.Dial, Health: s.health, Logger: s.o.logger,
		Workspace: s.o.workspace, Data: string(s.o.data), PortsURL: s.ports, Hosts: s.o.hosts(), Proxied: s.o.proxied,
	})
	s.wireNetwork()
	s.wirePush()
}

func (s *parts) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// stopTime bounds how long an actor may take to end before the next one is stopped.
const stopTime = 6 * time.Second

// runActors starts the actors. They are stopped in the order in which they stand here, each before the next: OpenCode first,
// while what it has to say is still heard, then its commands, and people's shells before exec, which finds out what they changed.
func (s *parts) runActors(ctx context.Context, ready func()) error {
	var g run.Group
	rest := context.WithoutCancel(ctx)
	g.Add(actor(rest, s.runOpenCode))
	answering := opencode.Shells{Listener: s.shells, Secret: s.shells.secret, Conn: s.nc, Engine: engine, Logger: s.o.logger}
	g.Add(actor(rest, answering.Serve))
	for _, worker := range []func(context.Context) error{
		s.bridge.Deliver, s.bridge.Reply, s.bridge.Abort, s.bridge.Revert, s.bridge.Fork, s.bridge.Budgets, s.serveShells, s.exec.Run, s.bridge.Run, s.gate.Run, s.watchProviders, s.push.Run, s.keepSSHKeys,
	} {
		g.Add(actor(rest, s.onceLoaded(worker)))
	}
	g.Add(actor(rest, s.runSSH))
	g.Add(actor(rest, s.worker.Run))
	g.Add(actor(rest, s.runEgress))
	g.Add(actor(rest, func(ctx context.Context) error { return s.handlers.Serve(ctx, s.nc, operator, s.o.logger) }))
	g.Add(actor(rest, func(ctx context.Context) error { return s.push.Serve(ctx, s.nc, operator) }))
	g.Add(actor(rest, func(ctx context.Context) error { return s.gate.Serve(ctx, s.nc, operator) }))
	g.Add(actor(rest, func(ctx context.Context) error { return s.exec.Serve(ctx, s.nc, operator) }))
	g.Add(actor(rest, func(ctx context.Context) error { return s.model.Serve(ctx, s.nc) }))
	g.Add(actor(rest, func(ctx context.Context) error { return s.accounts.Serve(ctx, s.nc, operator, s.o.logger) }))
	g.Add(actor(rest, func(ctx context.Context) error { return serveHTTP(ctx, s.listener, s.web) }))
	g.Add(actor(rest, func(ctx context.Context) error { return s.web.Ports.Serve(ctx, s.nc, operator) }))
	g.Add(actor(rest, s.web.Realtime.Run))
	g.Add(actor(rest, s.web.API.Tail.Run))
	g.Add(actor(rest, s.accounts.Run))
	g.Add(actor(rest, s.load))
	g.Add(actor(rest, s.model.Run))
	g.Add(actor(rest, s.disk.Run))
	g.Add(actor(rest, func(ctx context.Context) error { return s.watchHealth(ctx, ready) }))
	g.Add(run.SignalHandler(ctx, syscall.SIGINT, syscall.SIGTERM))
	err := g.Run()
	if errors.Is(err, run.ErrSignal) || ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *parts) serveShells(ctx context.Context) error {
	return s.exec.ServeShells(ctx, s.nc, operator, s.sees)
}

// runOpenCode finds what OpenCode needs, or gets it, and keeps OpenCode running. The rest of the system does not wait.
func (s *parts) runOpenCode(ctx context.Context) (err error) {
	s.engine.Tools, err = opencode.Install(ctx, opencode.Installation{
		Dir: s.o.data.path("npm"), OpenCode: s.o.opencode, Progress: func(line string) { s.say.step("opencode", line) },
	})
	if err != nil {
		return err
	}
	s.engine.Shell, err = findShell(ctx, s.o.data, func(line string) { s.say.step("shell", line) })
	if err != nil {
		return err
	}
	if s.confined.Level == isolation.None {
		s.say.note("opencode", unconfined)
	}
	s.say.step("opencode", "starting "+s.engine.Tools.OpenCode)
	return s.engine.Run(ctx)
}

// actor runs fn until it is interrupted, and then waits for it, so that interrupts are an order.
func actor(ctx context.Context, fn func(context.Context) error) (func() error, func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	return func() error {
			defer close(done)
			return fn(ctx)
		}, func(error) {
			cancel()
			select {
			case <-done:
			case <-time.After(stopTime):
			}
		}
}
