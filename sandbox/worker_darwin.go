package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/quarantine"
	"pocketcoder/sandbox/wire"
)

// openDir opens a directory and returns its path with symlinks resolved. The check is by name: macOS cannot enter an
// open directory in a child.
func openDir(path string) (dir *os.File, real string, err error) {
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return nil, "", err
	}
	fd, err := unix.Open(real, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), real, nil
}

func enter(_ *os.File, real string) string { return real }

func startStopped(argv []string, attr *os.ProcAttr) (*os.Process, error) {
	attr.Sys.Setsid = true
	return os.StartProcess(argv[0], argv, attr)
}

func adoptOrphans() error { return nil }

// runToExit returns when a child has exited, and leaves it to be reaped. The numbers are P_PID, WEXITED and WNOWAIT of
// sys/wait.h.
func runToExit(pid int, _ func()) {
	var info [128]byte // siginfo_t takes 104
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, 1, uintptr(pid), uintptr(unsafe.Pointer(&info)), 0x4|0x20, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}

type identity struct{ marker string }

func newIdentity() identity { return identity{fmt.Sprint(os.Getpid())} }

// label finds nothing here: other processes' environments and limits cannot be read.
type label struct{}

func (identity) label() label                 { return label{} }
func (identity) command(string, uint32) label { return label{} }
func (label) apply(int, limit.Limits) error   { return nil }
func (label) marks(int) bool                  { return false }

func isLeftover(int, string) bool { return false }

func workerIsDead(string) bool { return false }

func kill(match, except func(pid int) bool) int { return 0 }

// enlargePipe does nothing: pipes of macOS grow by themselves.
func enlargePipe(*os.File) {}

// tree is the process group of one command. macOS has no means to find other processes of a command.
type tree struct {
	label
	exec       string
	limits     limit.Limits // without effect
	shell      int
	hasMonitor bool
	exceeded   chan wire.Reason // never written
	release    func()           // frees what the isolation of the shell uses
	started    atomic.Bool
	ended      atomic.Bool
	session    *quarantine.Session // of the watch for protected names
}

func (w *Worker) addTree(exec string, l label, limits limit.Limits) (*tree, error) {
	return &tree{label: l, exec: exec, limits: limits}, nil
}

func (t *tree) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func (t *tree) alive() []int { return nil }

func (t *tree) signal(s syscall.Signal) {
	syscall.Kill(-t.shell, s)
	if needsWake(s) {
		syscall.Kill(-t.shell, syscall.SIGCONT)
	}
}

func (t *tree) isEmpty() bool { return true }

func (t *tree) kill() {}

// listLeft returns nil, because other processes of the command cannot be found.
func (t *tree) listLeft() *wire.Left { return nil }

func (t *tree) exceededLimit(int, time.Duration) wire.Reason { return wire.Exited }

func (w *Worker) watch() {}

func (w *Worker) stopTree(*tree, wire.Reason) {}

// groups do nothing: cgroups exist on Linux only.
type groups struct{}

func (w *Worker) openGroups() (*groups, string) { return nil, "nothing but the timeout on macOS" }

func (g *groups) Close() {}

func openTerminal(wire.Terminal) (ours, theirs *os.File, err error) {
	return nil, nil, errors.New("commands at a terminal are run on Linux only")
}

func resize(*os.File, wire.Terminal) error { return nil }

// hosts returns the machine's localhost. It cannot check which process has a listening socket.
func (t *tree) hosts(int) []string { return []string{"localhost"} }

// changeTime is when a file's content or state changed last, in nanoseconds since 1970. Unlike the time of
// modification, no program can set it.
func changeTime(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Ctimespec.Nano() }
