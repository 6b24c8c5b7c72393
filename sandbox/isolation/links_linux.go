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

// RunLinks mounts directories so that the kernel follows no symbolic link in them, and then executes a command. argv is any
// number of rw=PATH and ro=PATH, "--", and the command. It returns the status to exit with, if it fails.
//
// Bubblewrap cannot do it. It keeps the flags of mounts that are nosuid and nodev already, and that it binds as they are.
func RunLinks(argv []string, stderr io.Writer) int {
	fmt.Fprintln(stderr, "sandbox:", runLinks(argv))
	return 126
}

func runLinks(argv []string) error {
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
		t, err := take(path, mode != "rw", true)
		if err != nil {
			return err
		}
		if err := t.put(); err != nil {
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

// linksArgv is the command line before bubblewrap's.
func (w *Walls) linksArgv(shields []shield) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := []string{self, LinksName}
	for _, dir := range w.place.NoLinks {
		mode := "ro="
		if dir == w.place.Workspace {
			mode = "rw="
		}
		argv = append(argv, mode+dir)
	}
	for _, s := range shields {
		argv = append(argv, "ro="+s.path)
	}
	return append(argv, "--"), nil
}

// linksAttributes are those of the process that runs RunLinks. A user other than root may mount only in a user namespace.
func linksAttributes(a *syscall.SysProcAttr) {
	a.Cloneflags |= syscall.CLONE_NEWNS
	if uid := os.Geteuid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
}

// FollowsLinks returns why the kernel follows symbolic links in Place.NoLinks, nil if it does not.
func (w *Walls) FollowsLinks() error { return w.follows }

// tryLinks sets follows.
func (w *Walls) tryLinks() {
	switch {
	case len(w.place.NoLinks) == 0 || w.found.Level == Landlock && w.found.mounts:
		return
	case w.found.Level != Bwrap:
		w.follows = fmt.Errorf("%s without mounts of its own cannot refuse them", w.found.Level)
		return
	}
	argv, err := w.linksArgv(nil)
	if err != nil {
		w.follows = err
		return
	}
	cmd := exec.Command(argv[0], append(argv[1:], "true")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	linksAttributes(cmd.SysProcAttr)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.follows = fmt.Errorf("mount without symbolic links: %w %s", err, out)
	}
}
