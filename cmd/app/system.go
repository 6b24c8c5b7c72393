// Package app is the running system: New opens its foundations (NATS, the log, the read model, listeners) in order,
// Run hands them to the actors, and both close them in reverse when the first actor ends. The command up runs it, and
// tests may run it in-process. RunWorker is a sandbox worker, which is a process of its own.
//
// Promises: only this package wires the parts of the system. New leaves nothing open if it fails. Run returns once
// every actor has ended or had its time to end, and everything is closed.
//
// It must not know flags, commands, or how a conversation is shown.
package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/run"

	"pocketcoder/bridge/mcp"
	"pocketcoder/bridge/mcp/gateway"
	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/configuration"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/bridge/opencode/install"
	"pocketcoder/bridge/opencode/notes"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/bridge/opencode/shellsocket"
	"pocketcoder/bridge/opencode/snapshots"
	effects "pocketcoder/bridge/outbox"
	"pocketcoder/bridge/push"
	"pocketcoder/bridge/ssh"
	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/program"
	"pocketcoder/cmd/viewer"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/delegate"
	"pocketcoder/handlers/exec"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/ops/natsconf"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web"
	"pocketcoder/web/api"
)

// New opens the foundations of a system in order. It closes what it has opened if it returns an error.
//
//	browser ─▶ http ─────────▶ handlers ─▶ log (NATS) ─▶ model (SQLite) ─▶ http, cmd
//	   OpenCode ◀─▶ ingest, outbox ─▲       │
//	      └─ pocketcoder-shell ─▶ exec ─▶ worker (child process)
func New(ctx context.Context, o Options) (_ *System, err error) {
	s := &System{o: o, progress: newProgress(o.Stderr)}
	ctx = log.WithoutTimeout(ctx) // opening a large log on a busy machine takes long
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	release, err := o.Data.Open()
	if err != nil {
		return nil, err
	}
	s.onClose("the data directory", without(release))
	if s.listener, err = listen("web server", o.HTTP, "--http"); err != nil {
		return nil, err
	}
	s.onClose("the web server", s.listener.Close)
	if s.local, err = listenLocal(o.Data.APISocket()); err != nil {
		return nil, err
	}
	s.onClose("the API socket", s.local.Close)
	if err := s.openMetrics(); err != nil {
		return nil, err
	}
	// with --network off too: a rule may allow a chat a host
	if s.egress, err = listen("egress proxy", o.Egress, "--egress"); err != nil {
		return nil, err
	}
	s.onClose("the egress proxy", s.egress.Close)
	if s.isolation, err = isolation.Choose(o.Isolation); err != nil {
		return nil, fmt.Errorf("isolate OpenCode: %w", err)
	}
	viewer.Stop(o.Data) // after a crash, the tmux server still runs
	if s.ssh, err = openSSH(ctx, o, s.progress); err != nil {
		return nil, err
	}
	s.onClose("the SSH server", without(s.ssh.Close))
	if err := s.openLog(ctx); err != nil {
		return nil, err
	}
	if err := s.openAccounts(ctx); err != nil {
		return nil, err
	}
	if err := s.useStoredKeys(ctx); err != nil {
		return nil, err
	}
	if err := s.openVAPID(ctx); err != nil {
		return nil, err
	}
	s.log.Conceal(secret.System, "push", s.vapid.Private)
	s.log.Conceal(secret.Environment, "relay", o.Relay.Secret)
	s.publicURL, s.ports = o.publicURL(s.listener.Addr().String()), o.portTemplate(s.listener.Addr().String())
	s.wire(ctx)
	if err := errors.Join(s.modelKeys.Load(ctx), s.procedures.Load(ctx)); err != nil {
		return nil, err
	}
	s.onClose("the socket of the shell", func() error {
		if s.leads() {
			return s.shells.Close()
		}
		return nil
	})
	return s, s.openLease(ctx)
}

// openLog opens NATS, the log, the model provider and the read model.
func (s *System) openLog(ctx context.Context) (err error) {
	if s.keys, err = natsconf.LoadKeys(s.o.Data.Path("keys")); err != nil {
		return err
	}
	models := s.o.Data.ReadModels() // which earlier versions kept one directory higher
	if err := errors.Join(os.MkdirAll(models, 0o700), store.Move(string(s.o.Data), models)); err != nil {
		return err
	}
	s.nats, err = openLogServer(ctx, logServerOptions{Data: s.o.Data, URL: s.o.NATS,
		Config: NATSConfig(s.o.Data, s.keys), Logger: s.o.Logger}, s.keys)
	if err != nil {
		return err
	}
	s.onClose("NATS", without(s.nats.Close))
	s.nc, s.url = s.nats.Conn, s.nats.URL
	s.disk = &logDisk{Data: s.o.Data, Server: s.nats.Embedded, Damaged: s.nats.HasDamage, Logger: s.o.Logger,
		Reopened: func() { s.log.Reopened() }}
	var closeModel func()
	if s.provider, s.isDemo, closeModel, err = openProvider(ctx, s.o.Getenv, s.o.Model); err != nil {
		return err
	}
	s.onClose("the demo model", without(closeModel))
	streams := streamOptions(s.o)
	streams.Refuse = s.disk.Refusal
	if s.log, err = log.Open(ctx, s.nc, streams, secret.NewRedactor(s.provider.Secrets()...)); err != nil {
		return err
	}
	if err := s.nats.Compare(ctx); err != nil {
		return err
	}
	s.uncertain = s.nats.Uncertain() > 0
	if lost := s.nats.Trouble(); lost != "" {
		s.progress.Note("log", "%s", lost)
	}
	if s.opened, err = s.log.Last(ctx); err != nil {
		return err
	}
	s.progress.Done("log", "NATS at %s, %d events", s.url, s.opened)
	if s.model, err = projections.Open(ctx, s.o.Data.ReadModels(), s.log); err != nil {
		return err
	}
	s.onClose("the read model", s.model.Close)
	if aside := s.model.ReplacedFile(); aside != "" {
		s.progress.Note("read model", "%s", aside)
	}
	return nil
}

// stop closes a foundation.
type stop struct {
	name  string
	close func() error
}

// onClose adds a stop. close runs the stops in reverse order.
func (s *System) onClose(name string, fn func() error) { s.stops = append(s.stops, stop{name, fn}) }

// without returns fn as a function that returns no error.
func without(fn func()) func() error { return func() error { fn(); return nil } }

// close closes the foundations in reverse order. An actor may have closed its listener before.
func (s *System) close() (failed error) {
	for _, stop := range slices.Backward(s.stops) {
		if err := stop.close(); err != nil && !errors.Is(err, net.ErrClosed) {
			failed = errors.Join(failed, fmt.Errorf("close %s: %w", stop.name, err))
		}
	}
	s.stops = nil
	return failed
}

// Run runs the actors until one of them ends, a signal arrives or ctx ends. Then it closes the foundations. It calls
// ready once every part works.
func (s *System) Run(ctx context.Context, ready func(datadir.Running)) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	r := datadir.Running{
		PID: os.Getpid(), Started: time.Now().UTC(), Version: program.Version(), NATS: s.url, HTTP: "http://" + s.listener.Addr().String(), Workspace: s.o.Workspace,
	}
	if err := s.o.Data.Announce(r); err != nil {
		return err
	}
	return s.runActors(ctx, func() {
		if s.lease == nil {
			s.progress.Ready(startedSystem{Running: r, URL: s.publicURL, Data: s.o.Data, Model: s.modelText(),
				WorkerPID: s.worker.PID(), OpenCode: s.engine.Tools.OpenCode + " " + s.engine.Tools.Version})
		} else {
			holder, _ := s.lease.Holder()
			s.progress.Done("ready", "node %s (%s) at %s; the engine runs on node %s", s.node, strings.Join(s.o.Roles, ", "),
				r.HTTP, holder.Node)
		}
		s.offerSetup(ctx)
		ready(r)
	})
}

// shellListener is where pocketcoder-shell asks for commands.
type shellListener struct {
	net.Listener
	address, secret string
}

// openShells listens for pocketcoder-shell. At isolation levels without mounts of their own, OpenCode gets no Unix
// sockets, because it could reach those of the machine. There it uses TCP with a secret.
func openShells(o Options, confined isolation.Choice) (s shellListener, err error) {
	if confined.Level != isolation.Landlock && confined.Level != isolation.Container {
		s.address = shellsocket.Unix + o.shellSocket()
		s.Listener, err = opencode.ListenForShells(o.shellSocket())
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

// System holds the parts of a running system.
type System struct {
	o         Options
	stops     []stop       // of the foundations, in the order in which they were opened
	listener  net.Listener // of the web server
	local     net.Listener // of the API for the operator of this machine
	metrics   net.Listener // for Prometheus; nil without --metrics
	progress  *progress
	keys      natsconf.Keys
	url       string
	nats      *logServer
	nc        *nats.Conn
	disk      *logDisk
	log       *log.Log
	quorum    log.QuorumWatch
	opened    uint64 // sequence of the last event when the log was opened
	uncertain bool   // events were lost, and what followed from those before was not compared
	model     *projections.Model
	secrets   *secret.Store
	accounts  *account.Accounts
	provider  provider.Provider
	isDemo    bool
	vapid     push.VAPID
	publicURL string       // URL under which people reach the web server
	ports     string       // template of the URLs of ports
	egress    net.Listener // listener of the egress proxy
	shells    shellListener

	tail          *log.Tail
	chats         *chat.Chats
	records       *record.Records
	permissions   *permission.Permissions
	budgets       *budget.Budgets
	ingest        *ingest.Ingest
	outbox        *outbox.Outbox
	gate          permission.Gate
	delegates     *delegate.Delegates
	schedules     *schedule.Schedules
	previews      schedule.Previews
	network       *network.Sandbox // network access of commands
	exec          *exec.Executions
	engine        *opencode.Supervisor
	engineNetwork *network.Engine // network access of OpenCode itself
	tools         *mcp.Server     // PocketCoder's tools for OpenCode
	providerKeys  *model.ProviderKeys
	modelKeys     *configuration.ModelKeys
	procedures    *configuration.Procedures
	noteFiles     *notes.Notes
	restarts      *configuration.Restarts
	gateway       *gateway.Gateway // runs the approved MCP servers
	isolation     isolation.Choice // how OpenCode is isolated
	lives         opencode.Instances
	worker        *workerProcess
	web           *web.Server
	push          *push.Push
	channels      *channel.Channels
	ssh           *ssh.Server   // nil without --ssh
	engineNode    *sharedEngine // the engine, on whichever node it runs
	lease         *engineLease  // nil without Options.Roles
	node          string        // the name of this node in the lease
	leading       chan struct{} // closed once this node runs the engine
	loaded        chan struct{} // closed once the read model has caught up
	prepared      chan struct{} // closed once it leads, and ingest knows its sessions
	changed       chan struct{} // a part's state may have changed
}

// wire creates the parts of the system, each from parts that exist already. Some parts need each other: ingest and the
// outbox, OpenCode and its tools, the gate and the tools, the tools and the gateway, push and the web server. The part
// that is created first gets a function that looks up the other one. No such function is called before wire returns.
func (s *System) wire(ctx context.Context) {
	s.quorum.Log = s.log
	s.changed, s.loaded, s.prepared = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	s.leading = make(chan struct{})
	s.tail = log.NewTail(s.log)
	s.chats, s.permissions = &chat.Chats{Log: s.log, Projects: s.projects()}, &permission.Permissions{Log: s.log}
	s.budgets = &budget.Budgets{Records: s.records, Permissions: s.permissions}
	s.schedules = &schedule.Schedules{Log: s.log, Chats: s.chats, Accounts: s.accounts}
	s.ingest = &ingest.Ingest{
		Engine: engine, Directory: s.o.Workspace, Log: s.log, Model: s.model, Logger: s.o.Logger,
		Client: s.lives.Client, Pause: ingest.DefaultPause, IdleLimit: ingest.DefaultIdleLimit, Changed: s.change,
		KeepOriginal: s.permissions.KeepOriginal, Compare: s.holdUncertain, Uncertain: s.nats.Uncertain,
		Resend: func(ctx context.Context, m projections.PendingMessage) (bool, error) { return s.outbox.Resend(ctx, m) },
	}
	s.engine = &opencode.Supervisor{
		Dir: s.o.engineState(), Workspace: s.o.Workspace, Provider: s.provider, Logger: s.o.Logger,
		Launcher: program.Launcher, Isolation: s.isolation, Started: s.lives.Begin, Changed: s.change,
		Expose: s.o.Expose, MCP: s.renewTools,
		Conceal:      func(password string) { s.log.Conceal(secret.System, "opencode", password) },
		Proxy:        func() *url.URL { return s.engineNetwork.Renew() },
		Allow:        func(hosts []string) { s.engineNetwork.Allow(hosts) },
		SkillChanged: func(name, text string) error { return s.procedures.Changed(ctx, name, text) },
	}
	s.gate = permission.Gate{
		Permissions: s.permissions, Records: s.records, Rules: s.o.Rules, Workspace: s.o.Workspace, Session: s.session,
		Call: findCall(s.model), History: s.model.PastRequests, LastOfExecution: s.model.LastOfExecution, Logger: s.o.Logger,
		Evaluated: s.model.EvaluatedThrough, Network: s.o.sandboxNetwork(), Visible: s.engine.Visible(),
		NoteOn: func(ctx context.Context, chat string, a events.PermissionRequest) string {
			return s.tools.PreviewTask(ctx, chat, a)
		},
	}
	s.wireNetwork()
	s.exec = &exec.Executions{
		Permissions: s.permissions, Log: s.log, Conn: s.nc, Engine: engine, Pool: Pool, Workspace: s.o.Workspace,
		Network: s.network, Session: s.ingest.Session, HasRoom: s.disk.HasRoom, IdleAfter: s.o.IdleAfter, Logger: s.o.Logger,
		Applied: func(ctx context.Context) (uint64, error) { return s.model.DecisionsDone(ctx, events.KindKeep) },
		HasTurn: func(ctx context.Context, chat string) (bool, error) {
			c, _, err := s.model.Chat(ctx, chat)
			return c.Turn == projections.TurnAssistant, err
		},
	}
	s.outbox = &outbox.Outbox{
		Ingest: s.ingest, Engine: engine, Directory: s.o.Workspace, Log: s.log, Model: s.model, Logger: s.o.Logger,
		Pause: ingest.DefaultPause, Chats: s.chats, Records: s.records, Permissions: s.permissions, Limits: s.budgets,
		Default: s.provider.Model, MaxTurns: s.o.MaxTurns, RetryAfter: effects.RetryAfter,
		Rules: s.gate.RulesOf, BeforeEdit: s.exec.ExpectEdit,
		Snapshots: &snapshots.Snapshots{Workspace: s.o.Workspace, Dir: s.engine.SnapshotDir(),
			Kept: filepath.Join(s.o.engineState(), "kept"), Git: s.engine.RunGit},
	}
	s.worker = newWorkerProcess(s.o, s.url, s.keys, s.change, s.reportIsolation)
	s.wireDelegates()
	s.wireGateway()
	s.previews = schedule.Previews{Gate: s.gate, ChatsOf: s.model.ChatsOf}
	s.tools = &mcp.Server{
		Engine: engine, Chats: s.chats, Records: s.records, Model: s.model, Logger: s.o.Logger, JudgeRead: s.gate.JudgeRead,
		Delegates: s.delegates, Schedules: s.schedules, Preview: s.previews.Of, Gateway: s.gateway,
		Chat: func(session string) (string, bool) {
			found, ok := s.ingest.Session(session)
			return found.Chat, ok
		},
	}
	s.wireChannels()
	s.wirePush()
	s.engineNode = &sharedEngine{ID: engine, Conn: s.nc, Leads: s.leads, Outbox: s.outbox, Exec: s.exec, Push: s.push,
		Logger: s.o.Logger}
	s.web = web.New(web.Options{
		Log: s.log, Conn: s.nc, Pool: Pool, Tail: s.tail, Model: s.model, Chats: s.chats, Records: s.records, Gate: s.gate,
		Accounts: s.accounts, ProviderKeys: s.providerKeys, Channels: s.channels, Secrets: s.mcpSecrets(),
		Configured: s.outbox.Configured, Engine: s.engineNode.Chats(), Signal: s.engineNode.Signal, Dial: s.engineNode.Dial,
		Push:   api.Push{Key: s.vapid.Public, Send: s.engineNode.SendNotice, Test: s.engineNode.Test, Act: s.push.Act},
		Health: s.health, Loading: s.loading, Logger: s.o.Logger, Delegates: s.delegates, Schedules: s.schedules,
		Previews: s.previews, Proposals: s.proposals(), Workspace: s.o.Workspace, PortsURL: s.ports, URL: s.o.URL,
		Hosts: s.o.hosts(), Proxied: s.o.Proxied,
	})
	s.wireConfiguration()
}

func (s *System) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// stopTime limits how long an actor may take to end before the next one is stopped.
const stopTime = 6 * time.Second

// runActors starts the actors. They stop one after the other, in the order of their addition. OpenCode stops first,
// while its events are still ingested, then its commands. People's shells stop before exec, which lists the files that
// they changed.
func (s *System) runActors(ctx context.Context, ready func()) error {
	var g run.Group
	rest := log.WithoutTimeout(context.WithoutCancel(ctx))
	s.addEngine(&g, rest)
	for _, run := range []func(context.Context) error{s.keepSSHKeys, s.closeViewers} {
		g.Add(actor(rest, once(s.loaded, run)))
	}
	g.Add(actor(rest, s.runSSH))
	g.Add(actor(rest, s.runEgress))
	g.Add(actor(rest, once(s.loaded, s.watchSchedules)))
	g.Add(actor(rest, func(ctx context.Context) error { return web.Serve(ctx, s.listener, s.handler()) }))
	g.Add(actor(rest, func(ctx context.Context) error { return web.Serve(ctx, s.local, s.web.Local()) }))
	g.Add(actor(rest, s.serveMetrics))
	g.Add(actor(rest, s.web.Realtime.Run))
	g.Add(actor(rest, s.tail.Run))
	g.Add(actor(rest, again(s.accounts.Run)))
	g.Add(actor(rest, again(s.records.Follow)))
	g.Add(actor(rest, s.load))
	g.Add(actor(rest, s.model.Run))
	g.Add(actor(rest, s.nats.Run))
	g.Add(actor(rest, s.disk.Run))
	g.Add(actor(rest, s.log.WatchConsumers))
	if s.disk.Server == nil { // the embedded server reports it itself
		g.Add(actor(rest, s.quorum.Run))
	}
	g.Add(actor(rest, func(ctx context.Context) error { return s.watchHealth(ctx, ready) }))
	g.Add(run.SignalHandler(ctx, syscall.SIGINT, syscall.SIGTERM))
	err := g.Run()
	if errors.Is(err, run.ErrSignal) || ctx.Err() != nil {
		return nil
	}
	return err
}

// addEngine adds the actors of the engine, which run on one node at a time, and last the actor that keeps the lease.
func (s *System) addEngine(g *run.Group, rest context.Context) {
	g.Add(actor(rest, once(s.leading, s.runOpenCode)))
	g.Add(actor(rest, once(s.leading, func(ctx context.Context) error {
		answering := opencode.ShellServer{Listener: s.shells, Secret: s.shells.secret, Exec: s.exec.Exec,
			Logger: s.o.Logger}
		return answering.Serve(ctx)
	})))
	old := log.OffloadWorker{Log: s.log, Dir: s.o.OffloadDir, After: s.o.OffloadAfter, Archived: s.model.ArchivedSince,
		Logger: s.o.Logger}
	for _, run := range []func(context.Context) error{
		s.outbox.Run, s.outbox.Budgets, s.serveShells, s.exec.Run, s.ingest.Run, s.gate.Run, s.providers().Run,
		s.modelKeys.Run, s.procedures.Run, s.noteFiles.Run, s.restarts.Run, s.push.Run, s.runChannels, s.runWebhooks,
		old.Run, s.watchDelegates,
	} {
		g.Add(actor(rest, once(s.prepared, run)))
	}
	g.Add(actor(rest, once(s.prepared, s.gateway.Run)))
	g.Add(actor(rest, once(s.leading, s.worker.Run)))
	if s.lease != nil {
		g.Add(actor(rest, once(s.prepared, s.engineNode.Serve)))
		g.Add(actor(rest, again(s.providerKeys.Follow)))
		g.Add(actor(rest, s.keepLease))
	}
}

func (s *System) serveShells(ctx context.Context) error {
	return s.exec.ServeShells(ctx, s.nc, operator, s.mayAct)
}

// runOpenCode finds or installs OpenCode and its tools, and keeps OpenCode running. The rest of the system does not
// wait for it.
func (s *System) runOpenCode(ctx context.Context) (err error) {
	var building sync.WaitGroup // parallel to npm, which mostly waits for the network
	var noShell error
	building.Go(func() {
		s.engine.Shell, noShell = findOwnShell(ctx, s.o.Data, func(line string) { s.progress.Step("shell", line) })
	})
	s.engine.Tools, err = install.Find(ctx, install.Options{
		Dir: s.o.Data.Path("npm"), OpenCode: s.o.OpenCode, Progress: func(line string) { s.progress.Step("opencode", line) },
	})
	building.Wait()
	if err := errors.Join(err, noShell); err != nil {
		return err
	}
	if s.isolation.Level == isolation.None {
		s.progress.Note("opencode", Unconfined)
	}
	s.progress.Step("opencode", "starting "+s.engine.Tools.OpenCode)
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
