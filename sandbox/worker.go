// Package sandbox is the worker that runs commands: one process tree per execution, many at once.
//
// A Worker serves one workspace. Handle is the handler for wire.Serve: it runs commands with Exec, lists and reads
// files of the workspace, and connects to ports that a command serves. The caller has decided whether a command may
// run. Commands run at the configured isolation level (package isolation). Without a level the worker runs none.
//
// Promises:
//   - A command runs in a session and process group of its own, in the requested directory. The directory is inside
//     the workspace after all symlinks are resolved, even if it is swapped while the command starts. Stdin is
//     /dev/null, a terminal, or a pipe of the caller.
//   - The environment is built and never inherited (see environment).
//   - Output is sent as it comes, byte for byte, stdout and stderr apart. Buffers have a fixed size: a Write that
//     blocks blocks the command, as a pipe does.
//   - A command ends when its shell has exited and no process holds its stdout or stderr. A daemon that redirected its
//     output runs on until Close. In bubblewrap and at a terminal the command ends with its shell: what is left is
//     killed, or gets SIGHUP. The Result names the processes that a command without a terminal left.
//   - A timeout and a cancelled context end the whole tree: SIGTERM, and wire.KillGrace later SIGKILL.
//   - A command that exceeds a limit is killed, with its daemons. The Result names the limit.
//   - Exit code and signal come from wait(2) alone. For a signal that killed the shell, bubblewrap reports only the
//     code 128+n.
//   - If the worker is killed, the kernel kills each shell. The next Open of the workspace kills the processes that
//     they started. In bubblewrap the kernel kills those too, except in the few milliseconds of its start.
//
// The worker finds the processes of a tree by its cgroup (limit.Groups). It also tags each process with an environment
// marker and an unusual soft RLIMIT_RTTIME. Without cgroups, the next Open finds a process by the marker only, and a
// limit counts a process by the RLIMIT_RTTIME only. A process that removes both tags and leaves the process group is
// not found. Orphans are reparented to the worker, which reaps them. On macOS only the process group is signalled, and
// a directory is entered by its checked path.
//
// The package must not know what a permission or an event is, nor what the chat of a command means, nor that requests
// come over NATS.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/quarantine"
	"pocketcoder/sandbox/wire"
)

// Config is the configuration of a Worker. Workspace and Isolation are required.
type Config struct {
	Workspace string // absolute; commands run in it or below
	// HOME of every command, created if missing; default pocketcoder/home in the user's cache directory
	Home      string
	Shell     string           // called with -c and the command; default bash, else sh
	Timeout   time.Duration    // default time limit; 0 is no limit
	Limits    limit.Limits     // for each command
	Isolation isolation.Choice // required
	Expose    []string         // directories that commands may read, besides the workspace and the system's
	// for protected names that commands create, absolute; default pocketcoder/quarantine in the user's state directory.
	// Commands must not reach it
	Quarantine string
	Log        *slog.Logger // default slog.Default()
}

// Worker runs the commands of one workspace. It is safe for concurrent use.
type Worker struct {
	config      Config
	workspace   string // Config.Workspace with symlinks resolved
	id          identity
	confinement *isolation.Confinement
	path        string        // PATH of every command
	git         string        // directory of makeGitConfig
	gitLock     *os.File      // on it
	grace       time.Duration // time between SIGTERM and SIGKILL
	stop        chan struct{}
	loopbacks   loopbacks
	groups      *groups                // nil where none can be made
	quarantine  *quarantine.Quarantine // nil at levels that protect no names
	treeAdded   chan struct{}          // wakes the watch

	mu      sync.Mutex
	trees   map[uint32]*tree   // by serial, for as long as one of its processes may live
	serving map[string]*server // by exec id, each command whose ports may be reached
	dials   int                // connections to all of them
	running map[string]int     // exec id to the pid of its shell; 0 until it has started
	serial  uint32             // commands started
	execs   sync.WaitGroup     // one for each Exec and for the watch
}

// Open creates a Worker and kills the processes that a dead worker of this workspace left behind. A live worker's
// processes are never touched, so several may serve one workspace. Close it after use.
func Open(c Config) (*Worker, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	workspace, err := realDir(c.Workspace)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if err := c.Limits.Validate(); err != nil {
		return nil, err
	}
	if c.Shell, err = findShell(c.Shell); err != nil {
		return nil, err
	}
	if c.Home, err = makeHome(c.Home); err != nil {
		return nil, fmt.Errorf("make home for commands: %w", err)
	}
	resetIgnoredSignals()
	if err := adoptOrphans(); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	w := &Worker{
		config:    c,
		workspace: workspace,
		id:        newIdentity(),
		grace:     wire.KillGrace,
		stop:      make(chan struct{}),
		treeAdded: make(chan struct{}, 1),
		loopbacks: newLoopbacks(),
		trees:     map[uint32]*tree{},
		serving:   map[string]*server{},
		running:   map[string]int{},
	}
	if n := kill(func(pid int) bool { return isLeftover(pid, workspace) }, nil); n > 0 {
		c.Log.Warn("killed leftovers of an earlier worker", "processes", n, "workspace", workspace)
	}
	// after the leftovers are dead, so that their placeholders in the workspace can be removed
	if err := w.openConfinement(); err != nil {
		return nil, err
	}
	if err := w.openQuarantine(); err != nil {
		w.confinement.Close()
		w.removeGit()
		return nil, err
	}
	w.path = w.confinement.FilterPath(commandPath(os.Getenv("PATH")))
	reason := "this isolation lets no command start in a cgroup"
	if w.confinement.AllowsClone3() {
		w.groups, reason = w.openGroups()
	}
	c.Log.Info("limits of a command", "limits", c.Limits, "enforced by", reason)
	w.execs.Go(w.watch)
	return w, nil
}

// resetIgnoredSignals receives and drops signals that this process was started to ignore, for example by nohup.
// Otherwise commands would ignore them too, and a shell cannot trap a signal that was ignored at its start.
func resetIgnoredSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

func (w *Worker) openConfinement() (err error) {
	temp, err := filepath.EvalSymlinks(os.TempDir()) // resolved, because commands see the resolved path
	if err != nil {
		return fmt.Errorf("open TMPDIR: %w", err)
	}
	if w.git, w.gitLock, err = makeGitConfig(temp, userName()); err != nil {
		return err
	}
	expose := append([]string{w.git}, w.config.Expose...)
	w.confinement, err = isolation.Open(w.config.Isolation, isolation.FileAccess{Workspace: w.workspace,
		Home: w.config.Home, Expose: expose})
	if err == nil && !w.confinement.CanRead(w.config.Shell) {
		w.confinement.Close()
		err = hiddenShell(w.config.Shell)
	}
	if e := new(os.PathError); errors.As(err, &e) && e.Op == isolation.ExposeOp && e.Path == w.git {
		err = fmt.Errorf("TMPDIR is %s, which commands must not reach: set it to another directory, such as /var/tmp", temp)
	}
	if err != nil {
		w.removeGit()
	}
	return err
}

func (w *Worker) openQuarantine() (err error) {
	if w.config.Isolation.Level != isolation.Bwrap && w.config.Isolation.Level != isolation.Landlock {
		return nil
	}
	dir := w.config.Quarantine
	if dir == "" {
		dir = filepath.Join(stateDir(), "pocketcoder", "quarantine")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make quarantine: %w", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("open quarantine: %w", err)
	}
	if w.confinement.CanRead(real) {
		return fmt.Errorf("commands can read the quarantine %s; choose another directory with --quarantine", dir)
	}
	w.quarantine, err = quarantine.Open(quarantine.Config{Dir: dir, Workspace: w.workspace,
		Guards: !w.config.Isolation.Mounts(), Worker: w.id.marker, IsDead: workerIsDead})
	return err
}

// Close kills every process the worker's commands left running. It waits for Execs still running, whose contexts the
// caller has cancelled.
func (w *Worker) Close() {
	close(w.stop)
	w.execs.Wait()
	if n := kill(w.id.label().marks, nil); n > 0 {
		w.config.Log.Info("killed background processes of ended commands", "processes", n)
	}
	w.groups.Close()
	for _, t := range w.trees {
		t.session.Close()
		t.release()
	}
	w.loopbacks.close()
	w.confinement.Close()
	w.removeGit()
}

func (w *Worker) removeGit() {
	os.RemoveAll(w.git)
	w.gitLock.Close()
}

// isShell reports whether pid is the shell of a running command, which only its Exec may reap.
func (w *Worker) isShell(pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.running {
		if p == pid {
			return true
		}
	}
	return false
}

func realDir(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is not an absolute path", path)
	}
	dir, real, err := openDir(path)
	if err != nil {
		return "", err
	}
	return real, dir.Close()
}

// hiddenShell is the error about a shell that commands cannot read. It names what to expose: the directory of the
// shell, and that of the file to which a symbolic link leads.
func hiddenShell(shell string) error {
	flags := "--expose " + filepath.Dir(shell)
	if real, err := filepath.EvalSymlinks(shell); err == nil && filepath.Dir(real) != filepath.Dir(shell) {
		flags += " --expose " + filepath.Dir(real)
	}
	return fmt.Errorf("commands cannot see their shell %s in the sandbox; start with %s, or let PATH find a shell of the system first",
		shell, flags)
}

func findShell(name string) (string, error) {
	if name == "" {
		if path, err := exec.LookPath("bash"); err == nil {
			return path, nil
		}
		name = "sh"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find shell: %w", err)
	}
	return filepath.Abs(path)
}

// stateDir returns the user's directory for state (XDG_STATE_HOME).
func stateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".local", "state")
}

func makeHome(path string) (string, error) {
	if path == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(cache, "pocketcoder", "home")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return path, os.MkdirAll(path, 0o700)
}

// Handle carries out a request. It is the handler for wire.Serve.
func (w *Worker) Handle(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	if r.Op == wire.Run {
		return w.Exec(ctx, r, stdout, stderr)
	}
	began := time.Now()
	result := wire.Result{}
	if err := w.handleOther(ctx, r, stdout, stderr, &result); err != nil {
		result = wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: err.Error()}
		if ctx.Err() != nil {
			result.Reason = wire.Cancelled
		}
	}
	result.DurationMS = time.Since(began).Milliseconds()
	return result
}

func (w *Worker) handleOther(ctx context.Context, r wire.Request, stdout, stderr io.Writer, result *wire.Result) error {
	if r.Workspace != "" && !w.Serves(r.Workspace) {
		return fmt.Errorf("workspace %s is not this worker's, which is %s", r.Workspace, w.config.Workspace)
	}
	switch r.Op {
	case wire.Changes:
		return listChanges(ctx, w.workspace, r.Since, stdout)
	case wire.Read:
		return readFile(w.workspace, r.Path, stdout)
	case wire.Dial:
		return w.dial(ctx, r, stdout, stderr)
	case wire.Keep:
		return w.quarantine.Keep(r.Item)
	case wire.Dismiss:
		return w.quarantine.Dismiss(r.Item)
	case wire.Report:
		result.Quarantined = w.sessionOf(r.Exec).Report()
		return nil
	case wire.Expect:
		return w.quarantine.Expect(r.Path)
	}
	return fmt.Errorf("op %q is unknown", r.Op)
}

// sessionOf returns the session of a command, nil if none of its processes is left.
func (w *Worker) sessionOf(exec string) *quarantine.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.trees {
		if t.exec == exec {
			return t.session
		}
	}
	return nil
}

// Serves reports whether commands of a workspace run here. The workspace may be named by the path given to Open or by
// its real path.
func (w *Worker) Serves(workspace string) bool {
	return filepath.Clean(workspace) == filepath.Clean(w.config.Workspace) || workspace == w.workspace
}

// Holds reports whether a quarantined item is here.
func (w *Worker) Holds(item string) bool { return w.quarantine.Holds(item) }

// Info describes the worker for wire.Workers. The caller adds its capacity.
func (w *Worker) Info() wire.WorkerInfo {
	host, _ := os.Hostname()
	return wire.WorkerInfo{
		Name: fmt.Sprintf("%s-%d", host, os.Getpid()), Workspace: w.workspace,
		Isolation: string(w.config.Isolation.Level), Reason: w.config.Isolation.Reason,
		Apart: w.config.Isolation.Level == isolation.Bwrap && !w.config.Isolation.SharesLoopback,
	}
}
