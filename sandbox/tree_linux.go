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
	"pocketcoder/sandbox/wire"
)

// tree is all processes of one command, for as long as one of them lives: its shell, what that started, and the daemons
// that outlive both.
type tree struct {
	label
	exec      string
	sampler   limit.Sampler      // and its cgroup
	shell     int                // pid of the process we started, also when that is not yet the shell
	monitored bool               // that process is bubblewrap's, outside its namespaces
	over      chan wire.Reason   // holds the limit it passed
	keep      func(pid int) bool // the shells: only their Execs may reap them
	release   func()             // frees what the isolation of the shell uses
	began     atomic.Bool        // its first process is no copy of ours any more
	ended     atomic.Bool        // its Exec is over
}

// groups are the cgroups of a worker's commands.
type groups = limit.Groups

func (w *Worker) openGroups() (*groups, string) {
	return limit.OpenGroups(limit.Worker{Marker: w.id.marker, Workspace: w.workspace, IsDead: workerIsDead})
}

// hit names the limit that a command met which failed by itself.
func (t *tree) hit(code int, took time.Duration, l limit.Limits) wire.Reason {
	return t.sampler.Hit(code, took, l)
}

func (t *tree) attributes() *syscall.SysProcAttr { return t.sampler.Group.Attributes() }

// alive lists the processes of the tree that live, and reaps the dead but for the shell.
func (t *tree) alive() []int {
	pids := append(t.sampler.Group.Processes(), slices.Collect(members(t.on, t.keep))...)
	slices.Sort(pids)
	return slices.Compact(pids)
}

// signal sends a signal to every process of the tree, one by one, because an isolated shell is not in the group of
// the process we started. The monitor is left out: it would die and take all others with it at once. The init of its
// namespace gets nothing that it does not handle but SIGKILL and SIGSTOP, which end or stop all (pid_namespaces(7)).
func (t *tree) signal(s syscall.Signal) {
	for _, pid := range t.alive() {
		p, err := os.FindProcess(pid) // holds the process: from here on the pid cannot mean another
		if err == nil && !(t.monitored && pid == t.shell) && (t.on(pid) ||
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
	kill(t.on, t.keep)
}

// isLeftover says whether pid is of this user and belongs to a command of the workspace whose worker is dead.
func isLeftover(pid int, workspace string) bool {
	var owner unix.Stat_t
	if unix.Stat(proc.Path(pid, ""), &owner) != nil || int(owner.Uid) != os.Getuid() {
		return false
	}
	env := proc.Environ(pid)
	return proc.Variable(env, workspaceMarker) == workspace && workerIsDead(proc.Variable(env, workerMarker))
}

// workerIsDead judges a worker by its marker, see identity. One in another pid namespace cannot be seen, and is not
// dead.
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

// Until when kill tries: half a second after it found the last process that was not there before, as one that survives
// SIGKILL for so long hangs in the kernel, and never longer than a fork bomb on a slow machine takes to die.
const (
	killFor     = 500 * time.Millisecond
	killForever = 20 * time.Second
)

// kill sends SIGKILL to every matching process until none is left, and returns how many there were. It outruns a fork
// bomb: a process that was sent a signal cannot fork any more, and one born while all are walked through has a higher
// pid and is met later in the same walk; walking past a process takes a hundredth of the time to make one (measured).
func kill(match, keep func(pid int) bool) int {
	victims := map[int]bool{}
	began := time.Now()
	for end := began.Add(killFor); time.Now().Before(end); nap(time.Millisecond) {
		none := true
		for pid := range members(match, keep) {
			none = false
			if !victims[pid] && time.Since(began) < killForever {
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

// members are the live processes that match. On the way it reaps those dead ones that are our children, but for those
// to keep (it may be nil).
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

// reap collects a dead process if it is our child and not one to keep.
func reap(pid int, keep func(pid int) bool) {
	if keep == nil || !keep(pid) {
		unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}
