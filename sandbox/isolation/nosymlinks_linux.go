package isolation

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation/protection"
)

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
