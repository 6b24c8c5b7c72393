package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"

	protocol "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/oklog/run"

	"pocketcoder/bridge/mcp"
	"pocketcoder/bridge/mcp/gateway"
	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/configuration"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/bridge/opencode/install"
	"pocketcoder/bridge/opencode/notes"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/bridge/opencode/shellsocket"
	"pocketcoder/bridge/opencode/snapshots"
	effects "pocketcoder/bridge/outbox"
	"pocketcoder/cmd/program"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/exec"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/projections"
	"pocketcoder/sandbox/isolation"
)

// engine is one run of the OpenCode of a project, with all that belongs to it alone: its sandbox worker, the delivery
// of effects to it, what it reports, its tools and its network. Nothing of it is shared with another project's.
type engine struct {
	s         *System
	project   place
	shells    shellListener // where its pocketcoder-shell asks for commands
	ingest    *ingest.Ingest
	outbox    *outbox.Outbox
	exec      *exec.Executions
	opencode  *opencode.Supervisor
	lives     opencode.Instances
	network   *network.Engine // network access of OpenCode itself
	tools     *mcp.Server     // PocketCoder's tools for OpenCode
	gateway   *gateway.Gateway
	modelKeys *configuration.ModelKeys
	sealed    *configuration.Procedures
	noteFiles *notes.Notes
	restarts  *configuration.Restarts
	worker    *workerProcess
	visible   func(real string) bool // whether a path outside the workspace exists for OpenCode; nil for every path
	ready     chan struct{}          // closed when Ready
	prepared  chan struct{}          // closed once ingest knows its sessions
}

// place is where a project and its engine have their files. All paths are absolute.
type place struct {
	Project    string // id
	Workspace  string // directory of the project
	State      string // files of OpenCode
	Home       string // HOME of commands
	Quarantine string
}

// place returns the places of a project. The first project has those of an installation without projects.
func (s *System) place(project, directory string) place {
	dirs := s.o.Data.Project(project)
	switch {
	case s.o.EngineState == "":
	case project == firstProject:
		dirs.OpenCode = s.o.EngineState
	default: // beside it, because the first project's OpenCode reads what is in it
		dirs.OpenCode = filepath.Join(s.o.EngineState+"-projects", project)
	}
	return place{project, directory, dirs.OpenCode, dirs.Home, dirs.Quarantine}
}

// shellSocket returns the path of the socket at which pocketcoder-shell requests commands.
func (p place) shellSocket() string { return filepath.Join(p.State, "run", "shell.sock") }

// openEngine creates a run of the engine of a project.
func (s *System) openEngine(ctx context.Context, id string) (_ *engine, err error) {
	directory, err := s.directory(ctx, id)
	if err != nil {
		return nil, err
	}
	e := &engine{s: s, project: s.place(id, directory), ready: make(chan struct{}), prepared: make(chan struct{})}
	e.wire()
	if err := errors.Join(e.modelKeys.Load(ctx), e.sealed.Load(ctx)); err != nil {
		return nil, err
	}
	if e.shells, err = openShells(e.project, s.isolation); err != nil {
		return nil, err
	}
	e.opencode.ShellAddress = e.shells.address
	return e, nil
}

// wire creates the parts of the engine, each from parts that exist already. Some need each other: ingest and the
// outbox, OpenCode and its tools, the tools and the gateway. The part that is created first gets a function that looks
// up the other one. No such function is called before wire returns.
func (e *engine) wire() {
	s, p := e.s, e.project
	var models []string
	if address := s.provider.ModelAddress(); address != "" {
		models = []string{address}
	}
	e.network = &network.Engine{Network: s.network, Project: p.Project, Models: models}
	e.ingest = &ingest.Ingest{
		Engine: p.Project, Directory: p.Workspace, Log: s.log, Model: s.model, Logger: s.o.Logger,
		Client: e.lives.Client, Pause: ingest.DefaultPause, IdleLimit: ingest.DefaultIdleLimit, Changed: s.change,
		KeepOriginal: s.permissions.KeepOriginal, Compare: e.holdUncertain,
		Uncertain: func() uint64 { return s.uncertain(p.Project) },
		Resend:    func(ctx context.Context, m projections.PendingMessage) (bool, error) { return e.outbox.Resend(ctx, m) },
	}
	e.opencode = &opencode.Supervisor{
		Dir: p.State, Workspace: p.Workspace, Provider: s.provider, Logger: s.o.Logger,
		Launcher: program.Launcher, Isolation: s.isolation, Started: e.lives.Begin, Changed: s.change,
		Expose: s.o.Expose, MCP: e.renewTools,
		Conceal: func(password string) { s.log.Conceal(secret.System, "opencode", password) },
		Proxy:   func() *url.URL { return e.network.Renew() },
		Allow:   func(hosts []string) { e.network.Allow(hosts) },
		SkillChanged: func(name, text string) error {
			return e.sealed.Changed(context.Background(), name, text)
		},
	}
	e.visible = opencode.Visible(s.isolation.Level, append(slices.Clone(s.o.Expose), p.State))
	e.exec = &exec.Executions{
		Permissions: s.permissions, Log: s.log, Conn: s.nc, Engine: p.Project, Pool: Pool, Workspace: p.Workspace,
		Network: s.network, Session: e.ingest.Session, HasRoom: s.disk.HasRoom, IdleAfter: s.o.IdleAfter,
		Logger:  s.o.Logger,
		Applied: func(ctx context.Context) (uint64, error) { return s.model.DecisionsDone(ctx, events.KindKeep) },
		HasTurn: func(ctx context.Context, chat string) (bool, error) {
			c, _, err := s.model.Chat(ctx, chat)
			return c.Turn == projections.TurnAssistant, err
		},
		IsOwn: e.has,
	}
	e.outbox = &outbox.Outbox{
		Ingest: e.ingest, Engine: p.Project, Directory: p.Workspace, Log: s.log, Model: s.model, Logger: s.o.Logger,
		Pause: ingest.DefaultPause, Chats: s.chats, Records: s.records, Permissions: s.permissions, Limits: s.budgets,
		Default: s.provider.Model, MaxTurns: s.o.MaxTurns, RetryAfter: effects.RetryAfter,
		Rules: s.gate.RulesOf, BeforeEdit: e.exec.ExpectEdit,
		Snapshots: &snapshots.Snapshots{Workspace: p.Workspace, Dir: e.opencode.SnapshotDir(),
			Kept: filepath.Join(p.State, "kept"), Git: e.opencode.RunGit},
	}
	e.worker = newWorkerProcess(s.o, p, s.url, s.keys, s.change, s.reportIsolation)
	_, port, _ := net.SplitHostPort(s.egress.Addr().String())
	e.gateway = &gateway.Gateway{
		Engine: p.Project, Log: s.log, Records: s.records, Secrets: s.mcpSecrets(), Programs: e.programs, Conn: s.nc,
		Pool: Pool, Workspace: p.Workspace, Hosts: s.mcpHosts,
		Elsewhere: p.Project != firstProject, Proxy: net.JoinHostPort("127.0.0.1", port),
		Offer: func(all []gateway.Tool) { e.tools.Offer(all) }, Logger: s.o.Logger,
		Elicit: func(ctx context.Context, asked gateway.Elicitation) (*protocol.ElicitResult, string, error) {
			return e.tools.Elicit(ctx, asked)
		},
	}
	e.tools = &mcp.Server{
		Engine: p.Project, Chats: s.chats, Records: s.records, Model: s.model, Logger: s.o.Logger,
		JudgeRead: s.gate.JudgeRead, Delegates: s.delegates, Schedules: s.schedules, Preview: s.previews.Of,
		Gateway: e.gateway,
		Chat: func(session string) (string, bool) {
			found, ok := e.ingest.Session(session)
			return found.Chat, ok
		},
	}
	e.wireConfiguration()
}

// programs returns the files of the project that a command names, with their hashes.
func (e *engine) programs(command string) []string {
	return workspace.Programs(command, e.project.Workspace)
}

// has reports whether a chat belongs to the engine.
func (e *engine) has(ctx context.Context, chat string) (bool, error) {
	c, found, err := e.s.model.Chat(ctx, chat)
	return found && c.Engine == e.project.Project, err
}

// isReady reports whether the engine takes work, or has done so.
func (e *engine) isReady() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

// Ready is closed when the engine takes work.
func (e *engine) Ready() <-chan struct{} { return e.ready }

// Run runs the engine until ctx ends or a part of it fails. Its parts stop in the order of their addition: OpenCode
// stops first, while its events are still ingested, then its commands.
func (e *engine) Run(ctx context.Context) error {
	var g run.Group
	rest := log.WithoutTimeout(context.WithoutCancel(ctx))
	life, end := context.WithCancel(ctx)
	g.Add(func() error { <-life.Done(); return ctx.Err() }, func(error) { end() })
	g.Add(actor(rest, e.runOpenCode))
	g.Add(actor(rest, func(ctx context.Context) error {
		answering := opencode.ShellServer{Listener: e.shells, Secret: e.shells.secret, Exec: e.exec.Exec,
			Logger: e.s.o.Logger}
		return answering.Serve(ctx)
	}))
	for _, run := range []func(context.Context) error{
		e.outbox.Run, e.exec.Run, e.ingest.Run, e.providers().Run, e.modelKeys.Run, e.sealed.Run, e.noteFiles.Run,
		e.restarts.Run, e.gateway.Run,
	} {
		g.Add(actor(rest, once(e.prepared, run)))
	}
	g.Add(actor(rest, e.worker.Run))
	g.Add(actor(rest, e.prepare))
	err := g.Run()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// prepare loads the sessions into ingest. It records as lost the commands that were requested and have no result,
// because the previous process or node died.
func (e *engine) prepare(ctx context.Context) error {
	if err := e.s.model.CatchUp(ctx); err != nil { // the previous run has stopped, so no later event of it follows
		return err
	}
	if err := e.ingest.Load(ctx); err != nil {
		return fmt.Errorf("load sessions: %w", err)
	}
	running, err := e.s.model.RunningExecutions(ctx)
	if err != nil {
		return err
	}
	for _, x := range running {
		own, err := e.has(ctx, x.Chat)
		if err == nil && own {
			err = e.exec.RecordLost(ctx, x.Chat, x.ID)
		}
		if err != nil {
			return err
		}
	}
	close(e.prepared)
	if err := e.ingest.WaitConnected(ctx); err != nil {
		return err
	}
	close(e.ready)
	e.s.change()
	<-ctx.Done()
	return ctx.Err()
}

// holdUncertain holds effects that may have been carried out already: events are lost, or a backup was restored, so the
// log cannot tell. After a loss that is found while this process runs, the next start does it, because the read models
// of this process still have the lost events.
func (e *engine) holdUncertain(ctx context.Context) error {
	before := e.s.uncertain(e.project.Project)
	_, stale, err := e.s.nats.Stale()
	if before == 0 || stale || err != nil {
		return err
	}
	if err := e.outbox.Hold(ctx, before); err != nil {
		return err
	}
	return e.s.compared(ctx, e.project.Project, before)
}

// runOpenCode finds or installs OpenCode and its tools, and keeps OpenCode running.
func (e *engine) runOpenCode(ctx context.Context) (err error) {
	tools, shell, err := e.s.programsOfOpenCode(ctx)
	if err != nil {
		return err
	}
	e.opencode.Tools, e.opencode.Shell = tools, shell
	e.s.progress.Step("opencode", "starting "+tools.OpenCode+" in "+e.project.Workspace)
	return e.opencode.Run(ctx)
}

// programs are what an OpenCode is started with. They are found once.
type programs struct {
	finding sync.Mutex
	found   bool
	tools   install.Tools
	shell   string
}

// programsOfOpenCode finds or installs OpenCode, its tools and pocketcoder-shell. The rest of the system does not wait
// for it.
func (s *System) programsOfOpenCode(ctx context.Context) (_ install.Tools, shell string, err error) {
	p := &s.found
	p.finding.Lock()
	defer p.finding.Unlock()
	if p.found {
		return p.tools, p.shell, nil
	}
	var building sync.WaitGroup // parallel to npm, which mostly waits for the network
	var noShell error
	building.Go(func() {
		p.shell, noShell = findOwnShell(ctx, s.o.Data, func(line string) { s.progress.Step("shell", line) })
	})
	p.tools, err = install.Find(ctx, install.Options{
		Dir: s.o.Data.Path("npm"), OpenCode: s.o.OpenCode, Progress: func(line string) { s.progress.Step("opencode", line) },
	})
	building.Wait()
	if err := errors.Join(err, noShell); err != nil {
		return p.tools, "", err
	}
	if s.isolation.Level == isolation.None {
		s.progress.Note("opencode", Unconfined)
	}
	p.found = true
	return p.tools, p.shell, nil
}

// shellListener is where pocketcoder-shell asks for commands.
type shellListener struct {
	net.Listener
	address, secret string
}

// openShells listens for pocketcoder-shell. At isolation levels without mounts of their own, OpenCode gets no Unix
// sockets, because it could reach those of the machine. There it uses TCP with a secret.
func openShells(p place, confined isolation.Choice) (s shellListener, err error) {
	if confined.Level != isolation.Landlock && confined.Level != isolation.Container {
		s.address = shellsocket.Unix + p.shellSocket()
		s.Listener, err = opencode.ListenForShells(p.shellSocket())
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

// sortedEngines returns the engines that run, the first project's first.
func (s *System) sortedEngines() (all []*engine) {
	for _, e := range s.engines.Running() {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *engine) int {
		if first := (a.project.Project == firstProject); first != (b.project.Project == firstProject) {
			if first {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.project.Project, b.project.Project)
	})
	return all
}

// engineOf returns the engine of a chat's project once it takes work. The engine does not stop until release is called.
func (s *System) engineOf(ctx context.Context, chatID string) (_ *engine, release func(), err error) {
	c, found, err := s.model.Chat(ctx, chatID)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, handlers.Refuse(handlers.NotFound, "There is no chat %s.", chatID)
	}
	return s.engines.Use(ctx, c.Engine)
}

// engineOfExecution returns the engine of an execution's chat.
func (s *System) engineOfExecution(ctx context.Context, id string) (_ *engine, release func(), err error) {
	x, found, err := s.model.Execution(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, handlers.Refuse(handlers.NotFound, "There is no execution %s.", id)
	}
	return s.engineOf(ctx, x.Chat)
}

// workspaceOf returns the directory of a chat's project, "" if it is not known.
func (s *System) workspaceOf(chatID string) string {
	ctx := context.Background()
	c, found, err := s.model.Chat(ctx, chatID)
	var directory string
	if err == nil && found {
		directory, err = s.directory(ctx, c.Engine)
	}
	if err != nil {
		s.o.Logger.Error("look up the directory of a chat", "chat", chatID, "err", err)
	}
	return directory
}

// directory returns the directory of a project.
func (s *System) directory(ctx context.Context, id string) (string, error) {
	if id == firstProject {
		return s.o.Workspace, nil
	}
	found, ok, err := s.projects().Get(ctx, id)
	if err == nil && !ok {
		err = handlers.Refuse(handlers.NotFound, "There is no project %s.", id)
	}
	if err != nil {
		return "", err
	}
	real, known := workspace.RealPath(found.Directory)
	if info, err := os.Stat(real); !known || err != nil || !info.IsDir() {
		return "", handlers.Refuse(handlers.Conflict, "The directory of the project %s, %s, is not there.", found.Name,
			found.Directory)
	}
	if real != found.Directory { // it was replaced by a symlink, perhaps into another project
		return "", handlers.Refuse(handlers.Conflict, "The directory of the project %s, %s, leads to %s.", found.Name,
			found.Directory, real)
	}
	if err := s.o.checkProject(real); err != nil {
		return "", handlers.Refuse(handlers.Conflict, "The directory of the project %s cannot be used: %v.", found.Name, err)
	}
	return real, nil
}

// visible returns the function for permission.Gate.Visible.
func (s *System) visible() func(directory, real string) bool {
	shows := opencode.Visible(s.isolation.Level, s.o.Expose)
	if shows == nil {
		return nil
	}
	return func(directory, real string) bool {
		for _, e := range s.engines.Running() {
			if within(e.project.Workspace, directory) {
				return e.visible(real)
			}
		}
		return shows(real)
	}
}

// within reports whether a path lies in a directory.
func within(directory, path string) bool {
	rel, err := filepath.Rel(directory, path)
	return err == nil && filepath.IsLocal(rel)
}

// noteOn returns a note on a request of a chat for the person who decides it, "" for none.
func (s *System) noteOn(ctx context.Context, chatID string, a events.PermissionRequest) string {
	c, _, err := s.model.Chat(ctx, chatID)
	if e, ok := s.engines.Running()[c.Engine]; ok && err == nil {
		return e.tools.PreviewTask(ctx, chatID, a)
	}
	return ""
}

// configuredModel returns "provider/model" of chats without a selection, "" until an OpenCode recommends one.
func (s *System) configuredModel() string {
	for _, e := range s.sortedEngines() {
		if model := e.outbox.Configured(); model != "" {
			return model
		}
	}
	return s.provider.Model
}

// skillFiles returns what is wrong with the files of skills, by skill.
func (s *System) skillFiles() map[string]string {
	all := map[string]string{}
	for _, e := range s.engines.Running() {
		maps.Copy(all, e.opencode.SkillFiles())
	}
	return all
}

// openCodeText returns the path and the version of OpenCode.
func (s *System) openCodeText() string {
	for _, e := range s.sortedEngines() {
		return e.opencode.Tools.OpenCode + " " + e.opencode.Tools.Version
	}
	return ""
}

// workerPID returns the process id of the first project's worker, 0 for none.
func (s *System) workerPID() int {
	if e, ok := s.engines.Running()[firstProject]; ok {
		return e.worker.PID()
	}
	return 0
}
