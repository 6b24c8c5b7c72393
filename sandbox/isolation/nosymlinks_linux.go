package isolation

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RunNoSymlinks mounts directories so that the kernel follows no symbolic link in them, and then executes a command.
// argv is any number of rw=PATH and ro=PATH, "--", and the command. It returns only on failure, with the exit
// status.
//
// Bubblewrap has no option for such mounts. It keeps the flags of a mount that it binds if the mount is nosuid and
// nodev.
func RunNoSymlinks(argv []string, stderr io.Writer) int {
	fmt.Fprintln(stderr, "sandbox:", execWithoutSymlinks(argv))
	return 126
}

func execWithoutSymlinks(argv []string) error {
	i := slices.Index(argv, "--")
	if i < 0 || i+1 == len(argv) {
		return errors.New("no command")
	}
	runtime.LockOSThread() // capabilities belong to a thread
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, word := range argv[:i] {
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
	program, err := exec.LookPath(argv[i+1])
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	return syscall.Exec(program, argv[i+1:], os.Environ())
}

// noSymlinksArgv returns the arguments to put before those of bubblewrap.
func (c *Confinement) noSymlinksArgv(mounts []protectiveMount) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := []string{self, NoSymlinksCommand}
	for _, dir := range c.access.NoSymlinks {
		mode := "ro="
		if dir == c.access.Workspace {
			mode = "rw="
		}
		argv = append(argv, mode+dir)
	}
	for _, s := range mounts {
		argv = append(argv, "ro="+s.path)
	}
	return append(argv, "--"), nil
}

// setNoSymlinksAttributes sets the attributes of the process that calls RunNoSymlinks. A user other than root can
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
	argv, err := c.noSymlinksArgv(nil)
	if err != nil {
		c.noSymlinksErr = err
		return
	}
	cmd := exec.Command(argv[0], append(argv[1:], "true")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	setNoSymlinksAttributes(cmd.SysProcAttr)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.noSymlinksErr = fmt.Errorf("mount without symbolic links: %w %s", err, out)
	}
}
