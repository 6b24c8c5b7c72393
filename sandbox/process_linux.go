package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/proc"
)

// openDir opens a directory and returns its path, symlinks resolved. The path is that of the open directory, so a later
// swap changes nothing.
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

// enter returns the path by which a child process enters dir: the open directory itself, not its name.
func enter(dir *os.File, _ string) string { return fdPath(int(dir.Fd())) }

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// startStopped starts a process in its own session. The process is killed when this thread ends. It is stopped before
// its first instruction, so that it can be labelled before it has children. Without that, four in five of 64 concurrent
// processes had children before (measured). On systems that forbid tracing, the process is not stopped.
func startStopped(argv []string, attr *os.ProcAttr) (*os.Process, error) {
	attr.Sys.Setsid, attr.Sys.Pdeathsig, attr.Sys.Ptrace = true, syscall.SIGKILL, true
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

// runToExit lets a process from startStopped run, and returns when it has exited. It leaves the process to be reaped.
// The caller's thread has started the process. If exiting is not nil, the kernel stops the process when it exits by
// itself, and exiting is called before the kernel frees anything. On systems that forbid tracing, it is not called.
func runToExit(pid int, exiting func()) {
	if exiting != nil && unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_TRACEEXIT) == nil &&
		unix.PtraceCont(pid, 0) == nil {
		if awaitExitStop(pid) && exitsByItself(pid) {
			exiting()
		}
	}
	unix.PtraceDetach(pid)
	await(pid, unix.WEXITED)
}

// awaitExitStop returns true when a traced process has stopped because it exits, or false if it has exited. It lets the
// process run after other stops, which are for signals and for the programs that it executes.
func awaitExitStop(pid int) bool {
	for {
		stop := await(pid, unix.WSTOPPED|unix.WEXITED)
		if stop.code != cldTrapped && stop.code != cldStopped {
			return false
		}
		signal := int(stop.status & 0xff)
		switch event := stop.status >> 8; event {
		case unix.PTRACE_EVENT_EXIT:
			return true
		case 0:
		default:
			signal = 0
		}
		if unix.PtraceCont(pid, signal) != nil {
			return false
		}
	}
}

// exitsByItself reports whether a process that is stopped at its exit was not killed by a signal.
func exitsByItself(pid int) bool {
	status, err := unix.PtraceGetEventMsg(pid)
	return err == nil && syscall.WaitStatus(status).Exited()
}

// childChange is what waitid(2) reports: the first fields of siginfo_t (linux/include/uapi/asm-generic/siginfo.h).
type childChange struct {
	_, _, code int32
	_          [0]uintptr
	_, _       int32
	status     int32
}

// The codes of childChange for a process that has stopped.
const (
	cldTrapped = 4
	cldStopped = 5
)

// await waits for a change of a child, and leaves it to be waited for.
func await(pid, change int) childChange {
	var info unix.Siginfo
	for errors.Is(unix.Waitid(unix.P_PID, pid, &info, change|unix.WNOWAIT, nil), unix.EINTR) {
	}
	return *(*childChange)(unsafe.Pointer(&info))
}

// identity identifies a worker. marker is the pid namespace, pid and start time of its process, which are unique while
// the machine runs, and the number of the worker in the process. The upper half of tag is that number; the lower half
// is for commands.
type identity struct {
	marker string
	tag    uint64
}

func newIdentity() identity {
	number := 1<<30 | rand.Uint64N(1<<30)
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	_, start := proc.State(os.Getpid())
	return identity{fmt.Sprintf("%s/%d/%s/%x", namespace, os.Getpid(), start, number), number << 32}
}

// label marks all processes of a command or of a worker: a marker in the environment, and a soft RLIMIT_RTTIME whose
// bits under mask are tag. Every descendant inherits this limit, whatever it does to its environment, session or
// parent. It needs no privilege, and limits only real-time processes, here to no less than 146,000 years of processor
// time.
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

// owns reports whether a process with that soft RLIMIT_RTTIME belongs to one of the worker's commands. The lower half
// is the serial of the command.
func (i identity) owns(limit uint64) bool { return limit&i.label().mask == i.tag }

func (l label) serial() uint32 { return uint32(l.tag) }

// apply tags a process from startStopped and applies the limits, or kills it. If tagging is not permitted, only the
// marker identifies the process.
func (l label) apply(pid int, limits limit.Limits) error {
	applied := make(chan error)
	// on another thread, because a confined thread cannot limit other processes
	go func() { applied <- l.limit(pid, limits) }()
	if err := <-applied; err != nil {
		return errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	}
	return nil
}

func (l label) limit(pid int, limits limit.Limits) error {
	if err := limits.Apply(pid); err != nil {
		return err
	}
	var tag unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &tag) == nil {
		tag.Cur = l.tag
		unix.Prlimit(pid, unix.RLIMIT_RTTIME, &tag, nil)
	}
	return nil
}

func (l label) marks(pid int) bool {
	var tag unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &tag) == nil && tag.Cur&l.mask == l.tag {
		return true
	}
	env := proc.Environ(pid)
	for _, m := range l.markers {
		if !bytes.Contains(env, []byte("\x00"+m+"\x00")) {
			return false
		}
	}
	return true
}

// enlargePipe sets the size of a pipe to pipeSize, if the system allows it. It does nothing to a terminal.
func enlargePipe(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// changeTime is when a file's content or state changed last, in nanoseconds since 1970. Unlike the time of
// modification, no program can set it.
func changeTime(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Ctim.Nano() }
