package sandbox

import (
	"bytes"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/wire"
)

// tree is all processes of one command, for as long as one of them lives: its shell, what that started, and the daemons
// that outlive both.
type tree struct {
	label
	exec      string
	group     *group             // its cgroup; nil where there is none
	shell     int                // pid of the process we started, also when that is not yet the shell
	monitored bool               // that process is bubblewrap's, outside its namespaces
	over      chan wire.Reason   // holds the limit it passed
	keep      func(pid int) bool // the shells: only their Execs may reap them
	leave     func()             // lets go of the walls
	began     atomic.Bool        // its first process is no copy of ours any more
	ended     atomic.Bool        // its Exec is over
	full      atomic.Bool        // a process was seen with as many open files as it may have
	spent     spending           // for the watch alone
}

// attributes are those to start its first process with.
func (t *tree) attributes() *syscall.SysProcAttr { return t.group.attributes() }

// alive lists the processes of the tree that live, and reaps the dead but for the shell.
func (t *tree) alive() []int {
	pids := append(t.group.processes(), slices.Collect(members(t.on, t.keep))...)
	slices.Sort(pids)
	return slices.Compact(pids)
}

// signal sends a signal to every process of the tree, one by one, because behind walls the shell is not in the group of
// the process we started. The monitor is left out: it would die and take all others with it at once. The init of its
// namespace gets nothing that it does not handle but SIGKILL and SIGSTOP, which end or stop all (pid_namespaces(7)).
func (t *tree) signal(s syscall.Signal) {
	for _, pid := range t.alive() {
		p, err := os.FindProcess(pid) // holds the process: from here on the pid cannot mean another
		if err == nil && !(t.monitored && pid == t.shell) && (t.on(pid) || slices.Contains(t.group.processes(), pid)) {
			p.Signal(s)
			if needsWake(s) {
				p.Signal(syscall.SIGCONT)
			}
		}
	}
}

// kill ends the tree at once.
func (t *tree) kill() {
	t.group.kill()
	kill(t.on, t.keep)
}

// isLeftover says whether pid is of this user and belongs to a command of the workspace whose worker is dead.
func isLeftover(pid int, workspace string) bool {
	var owner unix.Stat_t
	if unix.Stat(procPath(pid, ""), &owner) != nil || int(owner.Uid) != os.Getuid() {
		return false
	}
	env := environ(pid)
	return valueOf(env, workspaceMarker) == workspace && workerIsDead(valueOf(env, workerMarker))
}

// workerIsDead judges a worker by its marker, see identity. One in another pid namespace cannot be seen, and is not dead.
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
	state, start := stat(pid)
	return state == "" || state == "Z" || start != worker[2]
}

// Until when kill tries: half a second after it found the last process that was not there before, as one that survives
// SIGKILL for so long hangs in the kernel, and never longer than a fork bomb on a slow machine takes to die.
const (
	killFor     = 500 * time.Millisecond
	killForever = 20 * time.Second
)

// kill sends SIGKILL to every matching process until none is left, and returns how many there were. It outruns a fork
// bomb: a process that was sent a signal cannot fork any more, and one born while all are walked through has a higher pid
// and is met later in the same walk; walking past a process takes a hundredth of the time to make one (measured).
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

// members are the live processes that match. On the way it reaps those dead ones that are our children, but for those to
// keep (it may be nil).
func members(match, keep func(pid int) bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for pid := range processes() {
			if pid == os.Getpid() || !match(pid) {
				continue
			}
			switch state, _ := stat(pid); state {
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

// processes are the pids of all processes, rising, read piece by piece: those that are born meanwhile come last.
func processes() iter.Seq[int] {
	return func(yield func(int) bool) {
		proc, err := os.Open("/proc")
		if err != nil {
			return
		}
		defer proc.Close()
		for {
			names, err := proc.Readdirnames(64)
			for _, name := range names {
				if pid, err := strconv.Atoi(name); err == nil && !yield(pid) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// stat returns a process's state letter and its start time in clock ticks since boot (proc_pid_stat(5), fields 3 and
// 22), or nothing when it does not exist. The kernel says Z, too, when the first thread has ended and others (field 20) run
// on: that is no dead process, and its letter is S.
func stat(pid int) (state, start string) {
	fields := statFields(pid)
	if len(fields) < 20 {
		return "", ""
	}
	if state = fields[0]; state == "Z" && fields[17] != "0" && fields[17] != "1" {
		state = "S"
	}
	return state, fields[19]
}

// speaker is the thread to ask about a process: what a first thread that has ended leaves in /proc tells nothing.
func speaker(pid int) (thread int) {
	if fields := statFields(pid); len(fields) == 0 || fields[0] != "Z" {
		return pid
	}
	threads, _ := os.ReadDir(procPath(pid, "task"))
	for _, t := range threads {
		if thread, _ = strconv.Atoi(t.Name()); thread != pid {
			return thread
		}
	}
	return pid
}

// statFields are those of proc_pid_stat(5) from the third on.
func statFields(pid int) []string {
	data := readProc(pid, "stat")
	return strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // the name before may hold anything
}

// environ is the environment a process was started with, each variable between NULs; empty when it may not be read.
func environ(pid int) []byte {
	data, _ := os.ReadFile(procPath(pid, "environ"))
	return append([]byte{0}, data...)
}

func valueOf(env []byte, name string) string {
	_, after, _ := bytes.Cut(env, []byte("\x00"+name+"="))
	value, _, _ := bytes.Cut(after, []byte{0})
	return string(value)
}

// readProc reads a file of a process; nothing when that has ended. It takes half as long as os.ReadFile, which prepares to
// wait for what may never come.
func readProc(pid int, file string) []byte {
	fd, err := unix.Open(procPath(pid, file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 4096) // a status takes 1,500
	for {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return data
		}
		data = slices.Grow(data[:len(data)+n], 1024)
	}
}

func procPath(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }
