package sandbox

import (
	"iter"
	"maps"
	"os"
	"runtime"
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

// How often the processes of all commands are sampled: every sampleEvery while a command is new or uses a quarter of a
// limit, otherwise every sampleAtLeast. If sampling takes more than 1/sampleShare of one processor's time, the interval
// grows, to sampleAtLeast at most.
const (
	sampleEvery   = 50 * time.Millisecond
	sampleAtLeast = 250 * time.Millisecond
	sampleShare   = 50
)

// addTree adds the tree of a command that is about to start, and watches it.
func (w *Worker) addTree(exec string, l label, limits limit.Limits) (*tree, error) {
	group, err := w.groups.Make(l.serial(), limits)
	if err != nil {
		return nil, err
	}
	t := &tree{label: l, exec: exec, limits: limits, sampler: limit.Sampler{Group: group},
		exceeded: make(chan wire.Reason, 1), isShell: w.isShell, release: func() {}}
	w.mu.Lock()
	w.trees[l.serial()] = t
	w.mu.Unlock()
	select {
	case w.treeAdded <- struct{}{}:
	default: // the watch runs anyway
	}
	return t, nil
}

// watch checks the trees while there are any. As root, its thread has real-time priority. Beside the thousand processes
// of a fork bomb it would otherwise get a thousandth of the processor time.
func (w *Worker) watch() {
	runtime.LockOSThread() // never unlocked, so the thread ends with the watch
	unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	for {
		select {
		case <-w.stop:
			return
		case <-w.treeAdded:
		}
		pause := sampleEvery
		for left := 1; left > 0; {
			if w.pause(pause) {
				pause = sampleEvery
			}
			if isClosed(w.stop) {
				return
			}
			began := time.Now()
			var near bool
			left, near = w.sample()
			if pause *= 2; near {
				pause = sampleEvery
			}
			pause = min(max(pause, sampleShare*time.Since(began)), sampleAtLeast)
		}
	}
}

// pause waits, and reports whether the start of a command has ended the wait.
func (w *Worker) pause(d time.Duration) bool {
	for ; d > 0 && !isClosed(w.stop); d -= sampleEvery {
		sleepInKernel(sampleEvery)
		select {
		case <-w.treeAdded:
			return true
		default:
		}
	}
	return false
}

// sleepInKernel sleeps in the kernel. Go's timers fire on another thread, which a fork bomb may keep from running.
func sleepInKernel(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	unix.Nanosleep(&t, nil) // a signal may cut it short
}

// sample checks all processes of the machine once. It reaps ended daemons, checks the limits of each tree, and removes
// trees without processes. It returns the number of trees that are left, and whether one of them is close to a limit.
func (w *Worker) sample() (left int, near bool) {
	w.mu.Lock()
	trees := maps.Clone(w.trees)
	w.mu.Unlock()
	found := map[uint32][]int{}
	for pid := range proc.All() {
		var tag unix.Rlimit
		if unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &tag) == nil && w.id.owns(tag.Cur) {
			found[uint32(tag.Cur)] = append(found[uint32(tag.Cur)], pid)
		}
	}
	for serial, t := range trees {
		over := t.ended.Load() // first, so that a tree that ends meanwhile is checked once more
		if !over && !t.started.Load() {
			continue // before it executes the shell, its resources are the worker's
		}
		pids := append(found[serial], t.sampler.Group.Processes()...)
		slices.Sort(pids)
		use := t.sampler.Sample(slices.Compact(pids), t.limits, func(pid int) { reap(pid, t.isShell) })
		quarter := limit.Limits{Memory: t.limits.Memory / 4, Processes: t.limits.Processes / 4, CPUTime: t.limits.CPUTime / 4}
		near = near || quarter.Exceeded(use) != wire.Exited
		if reason := t.limits.Exceeded(use); reason != wire.Exited {
			w.stopTree(t, reason)
		}
		if over && use.Processes == 0 && t.sampler.Group.Remove() {
			w.mu.Lock()
			delete(w.trees, serial)
			w.mu.Unlock()
			t.session.Close()
			t.release()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.trees), near
}

// stopTree kills a command that exceeds a limit, or its daemons after its end.
func (w *Worker) stopTree(t *tree, reason wire.Reason) {
	select {
	case t.exceeded <- reason: // before the kill, so that Exec does not report an ordinary end
	default:
	}
	t.kill()
	w.config.Log.Info("killed command over a limit", "exec", t.exec, "limit", reason, "ended", t.ended.Load())
}

// listLeft returns the processes of the tree that run although the shell has exited, or nil. In bubblewrap they end
// with its monitor, so the monitor must wait.
func (t *tree) listLeft() *wire.Left {
	if len(t.programs()) == 0 {
		return nil
	}
	time.Sleep(settleTime)
	return wire.NewLeft(t.programs(), !t.hasMonitor)
}

// programs returns the name of the program of each live process of the tree, without the shell and bubblewrap.
func (t *tree) programs() (names []string) {
	for _, pid := range t.processes() {
		if pid == t.shell || isDead(pid) || t.isInit(pid) {
			continue
		}
		if name := proc.Program(pid); name != "" { // it has not ended meanwhile
			names = append(names, name)
		}
	}
	return names
}

// processes lists the processes of the tree, dead ones too.
func (t *tree) processes() []int {
	if t.sampler.Group == nil {
		return t.tagged()
	}
	return t.sampler.Group.Processes()
}

// tagged lists the processes with the tag of the tree. marks would take longer: it reads the environment of each
// process without the tag.
func (t *tree) tagged() (pids []int) {
	for pid := range proc.All() {
		var tag unix.Rlimit
		if pid != os.Getpid() && unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &tag) == nil && tag.Cur == t.tag {
			pids = append(pids, pid)
		}
	}
	return pids
}

func isDead(pid int) bool {
	state, _ := proc.State(pid)
	return state == "" || state == "Z" || state == "X"
}

// isInit reports whether a process is the first one in the namespace of bubblewrap. It is the only child of the
// monitor. Orphans become its children.
func (t *tree) isInit(pid int) bool {
	fields := proc.Stat(pid)
	return t.hasMonitor && len(fields) > 1 && fields[1] == strconv.Itoa(t.shell)
}
