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
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/run"

	"pocketcoder/bridge/engines"
	"pocketcoder/bridge/opencode/configuration"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/bridge/push"
	"pocketcoder/bridge/ssh"
	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/program"
	"pocketcoder/cmd/viewer"
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
	s.wire()
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
	s.losses.atStart = s.nats.Uncertain() > 0
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
				WorkerPID: s.workerPID(), OpenCode: s.openCodeText()})
		} else {
			holder, _ := s.lease.Holder()
			s.progress.Done("ready", "node %s (%s) at %s; the engine runs on node %s", s.node, strings.Join(s.o.Roles, ", "),
				r.HTTP, holder.Node)
		}
		s.offerSetup(ctx)
		ready(r)
	})
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
	model     *projections.Model
	secrets   *secret.Store
	accounts  *account.Accounts
	provider  provider.Provider
	isDemo    bool
	vapid     push.VAPID
	publicURL string       // URL under which people reach the web server
	ports     string       // template of the URLs of ports
	egress    net.Listener // listener of the egress proxy

	tail         *log.Tail
	chats        *chat.Chats
	records      *record.Records
	permissions  *permission.Permissions
	budgets      *budget.Budgets
	gate         permission.Gate
	delegates    *delegate.Delegates
	schedules    *schedule.Schedules
	previews     schedule.Previews
	network      *network.Sandbox // network access of commands
	mcpHosts     *network.Servers // network access of MCP servers
	providerKeys *model.ProviderKeys
	isolation    isolation.Choice       // how OpenCode is isolated
	found        programs               // what an OpenCode is started with
	reported     atomic.Pointer[string] // isolation level of commands
	engines      *engines.Manager[*engine]
	losses       comparisons
	web          *web.Server
	push         *push.Push
	channels     *channel.Channels
	ssh          *ssh.Server   // nil without --ssh
	engineNode   *sharedEngine // the engines, on whichever node they run
	lease        *engineLease  // nil without Options.Roles
	node         string        // the name of this node in the lease
	leading      chan struct{} // closed once this node runs the engines
	loaded       chan struct{} // closed once the read model has caught up
	changed      chan struct{} // a part's state may have changed
}

// wire creates the parts of the system, each from parts that exist already. Some parts need each other: push and the
// web server, the gate and the tools of an engine. The part that is created first gets a function that looks up the
// other one. No such function is called before wire returns.
func (s *System) wire() {
	s.quorum.Log = s.log
	s.changed, s.loaded, s.leading = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	s.tail = log.NewTail(s.log)
	s.chats, s.permissions = &chat.Chats{Log: s.log, Projects: s.projects()}, &permission.Permissions{Log: s.log}
	s.budgets = &budget.Budgets{Records: s.records, Permissions: s.permissions}
	s.schedules = &schedule.Schedules{Log: s.log, Chats: s.chats, Accounts: s.accounts}
	s.engines = &engines.Manager[*engine]{Open: s.openEngine, Demands: s.model.Demands, Waker: s.model,
		Idle: s.o.EngineIdle, Most: s.o.MaxEngines, Changed: s.change, Logger: s.o.Logger}
	s.gate = permission.Gate{
		Permissions: s.permissions, Records: s.records, Rules: s.o.Rules, Workspace: s.workspaceOf, Session: s.session,
		Call: findCall(s.model), History: s.model.PastRequests, LastOfExecution: s.model.LastOfExecution, Logger: s.o.Logger,
		Evaluated: s.model.EvaluatedThrough, Network: s.o.sandboxNetwork(), Visible: s.visible(), NoteOn: s.noteOn,
	}
	s.wireNetwork()
	s.wireDelegates()
	s.previews = schedule.Previews{Gate: s.gate, ChatsOf: s.model.ChatsOf}
	s.wireChannels()
	s.wirePush()
	s.engineNode = &sharedEngine{ID: chat.DefaultEngine, Conn: s.nc, Leads: s.leads, Of: s.engineOf,
		OfExecution: s.engineOfExecution, Workspace: s.workspaceOf, Push: s.push, Logger: s.o.Logger}
	s.web = web.New(web.Options{
		Log: s.log, Conn: s.nc, Pool: Pool, Tail: s.tail, Model: s.model, Chats: s.chats, Records: s.records, Gate: s.gate,
		Accounts: s.accounts, ProviderKeys: s.providerKeys, Channels: s.channels, Secrets: s.mcpSecrets(),
		Configured: s.configuredModel, Engine: s.engineNode.Chats(), Signal: s.engineNode.Signal, Dial: s.engineNode.Dial,
		Push:   api.Push{Key: s.vapid.Public, Send: s.engineNode.SendNotice, Test: s.engineNode.Test, Act: s.push.Act},
		Health: s.health, Loading: s.loading, Logger: s.o.Logger, Delegates: s.delegates, Schedules: s.schedules,
		Previews: s.previews, Proposals: s.proposals(), Directory: s.directory, ProjectsBelow: s.o.Projects, PortsURL: s.ports, URL: s.o.URL,
		Hosts: s.o.hosts(), Proxied: s.o.Proxied,
	})
}

func (s *System) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// stopTime limits how long an actor may take to end before the next one is stopped.
const stopTime = 6 * time.Second

// enginesTime limits how long the engines may take to end. They end at the same time, and the parts of one in order.
const enginesTime = 5 * stopTime

// runActors starts the actors. They stop one after the other, in the order of their addition. People's shells stop
// before the engines, which list the files that they changed.
func (s *System) runActors(ctx context.Context, ready func()) error {
	var g run.Group
	rest := log.WithoutTimeout(context.WithoutCancel(ctx))
	s.addEngines(&g, rest)
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

// addEngines adds the actors of the node that leads: the engines, what reacts to events, and last the actor that keeps
// the lease.
func (s *System) addEngines(g *run.Group, rest context.Context) {
	leads := func(run func(context.Context) error) func(context.Context) error {
		return once(s.leading, once(s.loaded, run))
	}
	g.Add(actor(rest, leads(s.serveShells)))
	g.Add(actorWithin(enginesTime, rest, leads(s.engines.Run)))
	old := log.OffloadWorker{Log: s.log, Dir: s.o.OffloadDir, After: s.o.OffloadAfter, Archived: s.model.ArchivedSince,
		Logger: s.o.Logger}
	spending := &outbox.Spending{Log: s.log, Model: s.model, Chats: s.chats, Limits: s.budgets, Logger: s.o.Logger}
	for _, run := range []func(context.Context) error{
		s.startFirst, spending.Run, s.gate.Run, s.applyProposals, s.push.Run, s.runChannels, s.runWebhooks, old.Run,
		s.watchDelegates,
	} {
		g.Add(actor(rest, leads(run)))
	}
	if s.lease != nil {
		g.Add(actor(rest, leads(s.engineNode.Serve)))
		g.Add(actor(rest, again(s.providerKeys.Follow)))
		g.Add(actor(rest, s.keepLease))
	}
}

func (s *System) serveShells(ctx context.Context) error {
	of := func(ctx context.Context, chat string) (*exec.Executions, func(), error) {
		e, release, err := s.engineOf(ctx, chat)
		if err != nil {
			return nil, nil, err
		}
		return e.exec, release, nil
	}
	return exec.ServeShells(ctx, s.nc, operator, s.mayAct, of)
}

func (s *System) applyProposals(ctx context.Context) error {
	return configuration.ApplyProposals(ctx, s.log, s.records, s.o.Logger)
}

// startFirst starts the engine of the first project with the system, so that the first answer does not wait for it. If
// that engine cannot start, the system ends with the reason.
func (s *System) startFirst(ctx context.Context) error {
	_, release, err := s.engines.Use(ctx, firstProject)
	if err != nil {
		return err
	}
	release()
	<-ctx.Done()
	return ctx.Err()
}

// actor runs fn until it is interrupted, and then waits for it, so that interrupts are an order.
func actor(ctx context.Context, fn func(context.Context) error) (func() error, func(error)) {
	return actorWithin(stopTime, ctx, fn)
}

// actorWithin is actor with a limit for the wait.
func actorWithin(limit time.Duration, ctx context.Context, fn func(context.Context) error) (func() error, func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	return func() error {
			defer close(done)
			return fn(ctx)
		}, func(error) {
			cancel()
			select {
			case <-done:
			case <-time.After(limit):
			}
		}
}
