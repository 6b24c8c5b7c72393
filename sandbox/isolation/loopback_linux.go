package isolation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Loopback is a network namespace that commands share: its loopback interface, and nothing else. The open files keep
// the namespace, so no process has to.
type Loopback struct{ network, user *os.File }

// Close frees the namespace. The kernel keeps it while commands run in it.
func (l *Loopback) Close() {
	l.network.Close()
	l.user.Close()
}

// loopbackTimeout limits the time to create a Loopback, also on a busy machine.
const loopbackTimeout = time.Minute

// inotifyShare is the part of the user's inotify instances that the commands in a Loopback can have together: one in
// inotifyShare. The others are left to this process and to the user's editors.
const inotifyShare = 4

// instancesFile has the most inotify instances in the user namespace of the process that opens it (namespaces(7)).
const instancesFile = "/proc/sys/user/max_inotify_instances"

// NewLoopback creates a namespace with bubblewrap, because a host may let only bubblewrap create one. tee runs in the
// namespace until this process has opened it, and limits the inotify instances. Bubblewrap starts tee when the loopback
// interface is up.
func NewLoopback() (*Loopback, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), loopbackTimeout)
	defer cancel()
	info, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	defer info.Close()
	cmd := exec.CommandContext(ctx, bwrap, "--unshare-user", "--unshare-net", "--die-with-parent", "--cap-drop", "ALL",
		"--cap-add", "CAP_SYS_RESOURCE", "--ro-bind", "/", "/", "--bind", "/proc", "/proc", "--info-fd", "3", "--",
		"tee", instancesFile)
	cmd.ExtraFiles = []*os.File{theirs}
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second // a child of bubblewrap that outlives the timeout has it open
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	runtime.LockOSThread() // bubblewrap is killed when the thread that started it ends
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start bubblewrap: %w", err)
	}
	l, err := openStarted(info, in, out)
	in.Close() // tee ends
	ended := cmd.Wait()
	if err != nil {
		return nil, fmt.Errorf("create a network namespace with bubblewrap: %w (%s)", err,
			cmp.Or(strings.TrimSpace(stderr.String()), fmt.Sprint(ended)))
	}
	return l, nil // with no limit if tee failed, because /proc/sys is read-only in some containers
}

// openStarted opens the namespace of tee once tee runs, and passes it the limit.
func openStarted(info io.Reader, in io.Writer, out io.Reader) (*Loopback, error) {
	var started struct {
		Child int `json:"child-pid"`
	}
	if err := json.NewDecoder(info).Decode(&started); err != nil {
		return nil, fmt.Errorf("read its pid: %w", err)
	}
	if _, err := fmt.Fprintln(in, max(userInstances()/inotifyShare, 1)); err != nil {
		return nil, fmt.Errorf("write to tee: %w", err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("read from tee: %w", err)
	}
	return openLoopback(started.Child)
}

// userInstances returns the most inotify instances of a user.
func userInstances() int {
	text, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 128 // the kernel's default
	}
	return n
}

// openLoopback opens the network namespace of a process, and the user namespace that owns it.
func openLoopback(pid int) (*Loopback, error) {
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	user, err := unix.IoctlRetInt(int(network.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		network.Close()
		return nil, fmt.Errorf("open the owner of the network namespace: %w", err)
	}
	return &Loopback{network, os.NewFile(uintptr(user), "user namespace")}, nil
}

// joinArgv returns the arguments that run a program in the namespaces of l. Only a process with one thread can join a
// user namespace, so nsenter does it and then executes the program. It opens the files of this process by their paths,
// because bubblewrap would pass inherited descriptors on to the command.
func (l *Loopback) joinArgv(argv []string) ([]string, error) {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return nil, errors.New("nsenter is not installed (for example: apt install util-linux)")
	}
	path := func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
	return slices.Concat([]string{nsenter, "--preserve-credentials", "--user=" + path(l.user),
		"--net=" + path(l.network), "--"}, argv), nil
}

// tryLoopback sets SharesLoopback, or adds to the reason why commands cannot share a Loopback.
func (c *Choice) tryLoopback() {
	if err := checkLoopback(); err != nil {
		c.Reason += fmt.Sprintf("; a command cannot reach what another command of its chat serves on 127.0.0.1: %v", err)
		return
	}
	c.SharesLoopback = true
}

// checkLoopback runs a command with bubblewrap, and returns an error unless the command runs in a Loopback.
func checkLoopback() error {
	l, err := NewLoopback()
	if err != nil {
		return err
	}
	defer l.Close()
	var want unix.Stat_t
	if err := unix.Fstat(int(l.network.Fd()), &want); err != nil {
		return err
	}
	argv, err := l.joinArgv([]string{"bwrap", "--unshare-user", "--unshare-pid", "--die-with-parent", "--cap-drop", "ALL",
		"--ro-bind", "/", "/", "--proc", "/proc", "--", "readlink", "/proc/self/ns/net"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), loopbackTimeout)
	defer cancel()
	runtime.LockOSThread() // bubblewrap is killed when the thread that started it ends
	defer runtime.UnlockOSThread()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	got, _, _ := strings.Cut(string(out), "\n")
	if err != nil {
		return fmt.Errorf("%w: %s", err, got)
	}
	if got != "net:["+strconv.FormatUint(want.Ino, 10)+"]" {
		return fmt.Errorf("a command runs in %q instead of the network %d", got, want.Ino)
	}
	return nil
}
