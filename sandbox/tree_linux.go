package sandbox

import (
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/quarantine"
	"pocketcoder/sandbox/wire"
)

// tree is the process tree of one command, until its last process has ended: its shell, the processes that the shell
// started, and daemons that outlive both.
type tree struct {
	label
	exec       string
	limits     limit.Limits
	sampler    limit.Sampler       // with its cgroup
	shell      int                 // pid of the process that the worker started
	hasMonitor bool                // that process is bubblewrap's, outside its namespaces
	exceeded   chan wire.Reason    // holds the exceeded limit
	isShell    func(pid int) bool  // reports whether a process is a shell, which only its Exec may reap
	release    func()              // frees what the isolation of the shell uses
	started    atomic.Bool         // its first process runs its program
	ended      atomic.Bool         // its Exec has returned
	session    *quarantine.Session // of the watch for protected names
}

// groups are the cgroups of a worker's commands.
type groups = limit.Groups

func (w *Worker) openGroups() (*groups, string) {
	return limit.OpenGroups(limit.Worker{Marker: w.id.marker, Workspace: w.workspace, IsDead: workerIsDead})
}

// exceededLimit returns the limit that a failed command has exceeded.
func (t *tree) exceededLimit(code int, took time.Duration) wire.Reason {
	return t.sampler.Hit(code, took, t.limits)
}

func (t *tree) attributes() *syscall.SysProcAttr { return t.sampler.Group.Attributes() }

// alive lists the live processes of the tree, and reaps dead ones except the shell.
func (t *tree) alive() []int {
	pids := append(t.sampler.Group.Processes(), slices.Collect(members(t.marks, t.isShell))...)
	slices.Sort(pids)
	return slices.Compact(pids)
}

// isEmpty reports whether no process of an ended command is left.
func (t *tree) isEmpty() bool {
	return !slices.ContainsFunc(t.processes(), func(pid int) bool { return !isDead(pid) })
}

// signal sends a signal to every process of the tree. An isolated shell is not in the group of the started process. The
// monitor of bubblewrap gets no signal, because its death would kill all others. The init of its namespace receives
// only signals that it handles, and SIGKILL and SIGSTOP, which end or stop all (pid_namespaces(7)).
func (t *tree) signal(s syscall.Signal) {
	for _, pid := range t.alive() {
		p, err := os.FindProcess(pid) // holds the process: from here on the pid cannot mean another
		if err == nil && !(t.hasMonitor && pid == t.shell) && (t.marks(pid) ||
			slices.Contains(t.sampler.Group.Processes(), pid)) {
			p.Signal(s)
			if needsWake(s) {
				p.Signal(syscall.SIGCONT)
			}
		}
	}
}

func (t *tree) kill() {
	t.sampler.Group.Kill()
	kill(t.marks, t.isShell)
}

// isLeftover reports whether a process of this user belongs to a command of the workspace whose worker is dead.
func isLeftover(pid int, workspace string) bool {
	var owner unix.Stat_t
	if unix.Stat(proc.Path(pid, ""), &owner) != nil || int(owner.Uid) != os.Getuid() {
		return false
	}
	env := proc.Environ(pid)
	return proc.Variable(env, workspaceMarker) == workspace && workerIsDead(proc.Variable(env, workerMarker))
}

// workerIsDead reports whether the worker with a marker is dead. A worker in another pid namespace cannot be checked
// and counts as alive.
func workerIsDead(marker string) bool {
	worker := strings.Split(marker, "/")
	if len(worker) != 4 {
		return false
	}
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	pid, err := strconv.Atoi(worker[1])
	if err != nil || worker[0] != namespace {
		return false
	}
	state, start := proc.State(pid)
	return state == "" || state == "Z" || start != worker[2]
}

// How long kill tries: killFor after it found the last new process, because a process that survives SIGKILL longer
// hangs in the kernel; and at most maxKillTime, which a fork bomb on a slow machine needs to die.
const (
	killFor     = 500 * time.Millisecond
	maxKillTime = 20 * time.Second
)

// kill sends SIGKILL to every matching process until none is left, and returns their number. It is faster than a fork
// bomb: a signalled process cannot fork, and a new process has a higher pid and is found later in the same walk.
// Checking a process takes a hundredth of the time to create one (measured).
func kill(match, keep func(pid int) bool) int {
	victims := map[int]bool{}
	began := time.Now()
	for end := began.Add(killFor); time.Now().Before(end); sleepInKernel(time.Millisecond) {
		none := true
		for pid := range members(match, keep) {
			none = false
			if !victims[pid] && time.Since(began) < maxKillTime {
				end = time.Now().Add(killFor)
			}
			victims[pid] = true
			p, err := os.FindProcess(pid) // holds the process: from here on the pid cannot mean another
			if err == nil && match(pid) {
				p.Signal(syscall.SIGKILL)
			}
		}
		if none {
			break
		}
	}
	return len(victims)
}

// members returns the live processes that match. It reaps dead children, except those for which keep returns true; keep
// may be nil.
func members(match, keep func(pid int) bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for pid := range proc.All() {
			if pid == os.Getpid() || !match(pid) {
				continue
			}
			switch state, _ := proc.State(pid); state {
			case "", "X":
			case "Z":
				reap(pid, keep)
			default:
				if !yield(pid) {
					return
				}
			}
		}
	}
}

// reap reaps a dead process if it is a child and not to be kept.
func reap(pid int, keep func(pid int) bool) {
	if keep == nil || !keep(pid) {
		unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}
