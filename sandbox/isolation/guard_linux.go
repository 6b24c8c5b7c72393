package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation/protection"
)

// RunGuard runs bubblewrap with its arguments, and returns its exit status, or 128+n after signal n. argv is any number
// of words for mountWithoutSymlinks, "--", and the call of bubblewrap.
//
// When ctx ends, the guard kills bubblewrap. It returns after the last process of the command has ended. The kernel
// ends ctx with SIGTERM when the thread that started the guard ends. Without the guard, a command could outlive a
// starter that is killed: in its first milliseconds, bubblewrap's first process in the namespace does not end with its
// parent.
func RunGuard(ctx context.Context, argv []string, stderr io.Writer) int {
	status, err := guard(ctx, argv)
	if err != nil {
		fmt.Fprintln(stderr, "sandbox:", err)
		return 126
	}
	return status
}

func guard(ctx context.Context, argv []string) (int, error) {
	i := slices.Index(argv, "--")
	if i < 0 || i+1 == len(argv) {
		return 0, errors.New("no command")
	}
	// The caller may stop to receive the signal when ctx ends. A second signal must not end the guard.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("become subreaper: %w", err)
	}
	runtime.LockOSThread() // capabilities belong to a thread, and the kernel kills the command when its thread ends
	if i > 0 {
		if err := mountWithoutSymlinks(argv[:i]); err != nil {
			return 0, err
		}
	}
	program, err := exec.LookPath(argv[i+1])
	if err != nil {
		return 0, err
	}
	p, err := os.StartProcess(program, argv[i+1:], &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}})
	if err != nil {
		return 0, fmt.Errorf("start command: %w", err)
	}
	closeInherited()
	defer context.AfterFunc(ctx, func() { p.Kill() })()
	return reapAll(p.Pid), nil
}

// closeInherited closes the descriptors from 3 that the command has inherited too. They have no close-on-exec flag.
func closeInherited() {
	for fd := 3; ; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			return
		}
		unix.Close(fd)
	}
}

// reapAll waits for all processes of a command, and returns the exit status of its first one. When the first one has
// ended, it kills the others.
func reapAll(first int) (status int) {
	for ended := false; ; {
		if ended {
			killChildren()
		}
		var child syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &child, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // there is none left
			return status
		case pid == first && child.Signaled():
			ended, status = true, 128+int(child.Signal())
		case pid == first:
			ended, status = true, child.ExitStatus()
		}
	}
}

func killChildren() {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// guardArgv returns the arguments to run a call of bubblewrap under the guard.
func guardArgv(noSymlinksWords, bwrap []string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return slices.Concat([]string{self, GuardCommand}, noSymlinksWords, []string{"--"}, bwrap), nil
}

// mountWithoutSymlinks mounts directories so that the kernel follows no symbolic link in them. Each word is rw=PATH or
// ro=PATH. It then clears the capabilities that a program of this thread would inherit.
//
// Bubblewrap has no option for such mounts. It keeps the flags of a mount that it binds if the mount is nosuid and
// nodev.
func mountWithoutSymlinks(words []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, word := range words {
		mode, path, _ := strings.Cut(word, "=")
		t, err := cloneTree(path, mode != "rw", true)
		if err != nil {
			return err
		}
		if err := t.attach(); err != nil {
			return err
		}
		unix.Close(t.fd)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	return nil
}

// noSymlinksWords returns the words for mountWithoutSymlinks, none if the kernel follows symbolic links.
func (c *Confinement) noSymlinksWords(mounts []protection.Mount) (words []string) {
	if c.noSymlinksErr != nil {
		return nil
	}
	for _, dir := range c.access.NoSymlinks {
		mode := "ro="
		if dir == c.access.Workspace {
			mode = "rw="
		}
		words = append(words, mode+dir)
	}
	if len(words) == 0 {
		return nil
	}
	for _, s := range mounts {
		words = append(words, "ro="+s.Path)
	}
	return words
}

// setNoSymlinksAttributes sets the attributes of a process that calls mountWithoutSymlinks. A user other than root can
// mount only in a user namespace.
func setNoSymlinksAttributes(a *syscall.SysProcAttr) {
	a.Cloneflags |= syscall.CLONE_NEWNS
	if uid := os.Geteuid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
}

// NoSymlinksError returns why the kernel follows symbolic links in FileAccess.NoSymlinks. It returns nil if the
// kernel does not follow them.
func (c *Confinement) NoSymlinksError() error { return c.noSymlinksErr }

func (c *Confinement) checkNoSymlinks() {
	switch {
	case len(c.access.NoSymlinks) == 0 || c.choice.Level == Landlock && c.choice.canMount:
		return
	case c.choice.Level != Bwrap:
		c.noSymlinksErr = fmt.Errorf("%s without mounts of its own cannot refuse them", c.choice.Level)
		return
	}
	argv, err := guardArgv(c.noSymlinksWords(nil), []string{"true"})
	if err != nil {
		c.noSymlinksErr = err
		return
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	setNoSymlinksAttributes(cmd.SysProcAttr)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.noSymlinksErr = fmt.Errorf("mount without symbolic links: %w %s", err, out)
	}
}
