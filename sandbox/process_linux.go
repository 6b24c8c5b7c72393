package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openDir opens a directory and returns the path the kernel reached it by, symlinks resolved. What is checked is what
// is opened, so a swap afterwards changes nothing.
func openDir(path string) (dir *os.File, real string, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir = os.NewFile(uintptr(fd), path)
	real, err = os.Readlink(fdPath(fd))
	if err != nil {
		dir.Close()
		return nil, "", err
	}
	return dir, real, nil
}

// enter is the path by which a child of this process enters dir: the open directory itself, not its name.
func enter(dir *os.File, _ string) string { return fdPath(int(dir.Fd())) }

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// startStopped starts a process in its own session, to be killed when this thread ends, and halted before its first
// instruction so that it can be labelled before it makes children. Without that, measured with 64 starting at once, four
// in five had children before. Some hardened systems forbid tracing: there it is not halted.
func startStopped(argv []string, attr *os.ProcAttr) (*os.Process, error) {
	attr.Sys = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Ptrace: true}
	p, err := os.StartProcess(argv[0], argv, attr)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		attr.Sys.Ptrace = false
		return os.StartProcess(argv[0], argv, attr)
	}
	if err == nil {
		await(p.Pid, unix.WSTOPPED|unix.WEXITED)
	}
	return p, err
}

func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// awaitExit returns when a child has exited, and leaves it to be reaped.
func awaitExit(pid int) { await(pid, unix.WEXITED) }

func await(pid, change int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, change|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// identity tells one worker's processes from every other's. marker is the pid namespace, pid and start time of the
// worker's process, which name it for as long as the machine runs, and the number of the worker in it. The upper half of
// tag is that number, the lower is left for commands.
type identity struct {
	marker string
	tag    uint64
}

func newIdentity() identity {
	number := 1<<30 | rand.Uint64N(1<<30)
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	_, start := stat(os.Getpid())
	return identity{fmt.Sprintf("%s/%d/%s/%x", namespace, os.Getpid(), start, number), number << 32}
}

// label is what all processes of a command, or of a worker, have in common: a marker in the environment, and a soft
// RLIMIT_RTTIME whose bits under mask are tag. That limit is inherited by every descendant, whatever it does to its
// environment, session or parent, needs no privilege, and limits only real-time processes, here to no less than 146,000
// years of processor time.
type label struct {
	markers   []string
	tag, mask uint64
}

func (i identity) label() label {
	return label{[]string{workerMarker + "=" + i.marker}, i.tag, 0xffffffff_00000000}
}

func (i identity) command(exec string, serial uint32) label {
	return label{append(i.label().markers, execMarker+"="+exec), i.tag | uint64(serial), ^uint64(0)}
}

// stick tags a process from startStopped, from the same thread, and lets it run. Where the limit may not be set the
// marker remains.
func (l label) stick(pid int) {
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit) == nil {
		limit.Cur = l.tag
		unix.Prlimit(pid, unix.RLIMIT_RTTIME, &limit, nil)
	}
	unix.PtraceDetach(pid)
}

func (l label) on(pid int) bool {
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &limit) == nil && limit.Cur&l.mask == l.tag {
		return true
	}
	env := environ(pid)
	for _, m := range l.markers {
		if !bytes.Contains(env, []byte("\x00"+m+"\x00")) {
			return false
		}
	}
	return true
}

// isLeftover says whether pid is of this user and belongs to a command of the workspace whose worker is dead. A worker in
// another pid namespace cannot be seen, so its processes are not judged.
func isLeftover(pid int, workspace string) bool {
	var owner unix.Stat_t
	if unix.Stat(procPath(pid, ""), &owner) != nil || int(owner.Uid) != os.Getuid() {
		return false
	}
	env := environ(pid)
	worker := strings.Split(valueOf(env, workerMarker), "/")
	if valueOf(env, workspaceMarker) != workspace || len(worker) != 4 {
		return false
	}
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	workerPid, err := strconv.Atoi(worker[1])
	if err != nil || worker[0] != namespace {
		return false
	}
	state, start := stat(workerPid)
	return state == "" || state == "Z" || start != worker[2]
}

// kill sends SIGKILL to every matching process until none is left, and reaps those that are our children. It returns how
// many it found. Processes that survive SIGKILL hang in the kernel: after half a second it gives up on them.
func kill(match, except func(pid int) bool) int {
	victims := map[int]bool{}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		alive := members(match, except)
		if len(alive) == 0 {
			break
		}
		for _, pid := range alive {
			victims[pid] = true
			p, err := os.FindProcess(pid) // holds the process: from here on the pid cannot mean another
			if err == nil && match(pid) {
				p.Signal(syscall.SIGKILL)
			}
		}
	}
	return len(victims)
}

// members lists the live processes that match, but for those that except names (it may be nil), and reaps the dead ones
// that are our children.
func members(match, except func(pid int) bool) (alive []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil || pid == os.Getpid() || except != nil && except(pid) || !match(pid) {
			continue
		}
		if state, _ := stat(pid); state == "Z" {
			unix.Wait4(pid, nil, unix.WNOHANG, nil)
		} else if state != "" && state != "X" {
			alive = append(alive, pid)
		}
	}
	return alive
}

// stat returns a process's state letter and its start time in clock ticks since boot (proc_pid_stat(5), fields 3 and
// 22), or nothing when it does not exist.
func stat(pid int) (state, start string) {
	data, _ := os.ReadFile(procPath(pid, "stat"))
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // the name before may hold anything
	if len(fields) < 20 {
		return "", ""
	}
	return fields[0], fields[19]
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

func procPath(pid int, file string) string { return filepath.Join("/proc", strconv.Itoa(pid), file) }
