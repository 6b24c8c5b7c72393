package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Rights of Landlock. A file takes only some of them.
const (
	readFile  = landlock.AccessFSExecute | landlock.AccessFSReadFile
	writeFile = readFile | landlock.AccessFSWriteFile | landlock.AccessFSTruncate
	read      = readFile | landlock.AccessFSReadDir
	write     = read | writeFile | landlock.AccessFSRemoveDir | landlock.AccessFSRemoveFile | landlock.AccessFSMakeDir | landlock.AccessFSMakeReg |
		landlock.AccessFSMakeSock | landlock.AccessFSMakeFifo | landlock.AccessFSMakeSym | landlock.AccessFSRefer
	device = landlock.AccessFSReadFile | landlock.AccessFSWriteFile | landlock.AccessFSIoctlDev
)

// handled is what a kernel's Landlock can deny: all of it is denied but for the rules. From ABI 4 (Linux 6.7) on it knows
// TCP, from 5 devices, from 6 signals and abstract sockets, from 9 sockets with a path.
func handled(abi int) landlock.RulesetAttr {
	a := landlock.RulesetAttr{
		HandledAccessFS:  landlock.AccessFSTruncate<<1 - 1,
		HandledAccessNet: landlock.AccessNetBindTCP | landlock.AccessNetConnectTCP,
	}
	if abi >= 5 {
		a.HandledAccessFS |= landlock.AccessFSIoctlDev
	}
	if abi >= 6 {
		a.Scoped = landlock.ScopeAbstractUnixSocket | landlock.ScopeSignal
	}
	if abi >= 9 {
		a.HandledAccessFS |= landlock.AccessFSResolveUnix
	}
	return a
}

// minABI is the first that knows the network.
const minABI = 4

// ruleset collects what is allowed.
type ruleset struct {
	fd      int
	handled uint64
}

func newRuleset() (ruleset, error) {
	abi, err := landlock.LandlockGetABIVersion()
	if err != nil {
		return ruleset{}, fmt.Errorf("ask for landlock: %w", err)
	}
	attr := handled(abi)
	fd, err := landlock.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return ruleset{}, fmt.Errorf("make landlock ruleset: %w", err)
	}
	return ruleset{fd, attr.HandledAccessFS}, nil
}

// allow grants rights on what path names, and on all below it. A missing path is nothing to grant. The last component may
// not be a symlink: one in a workspace would grant what it points to.
func (r ruleset) allow(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
	default:
		rights &= landlock.AccessFSExecute | landlock.AccessFSWriteFile | landlock.AccessFSReadFile | landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
	}
	if err := landlock.LandlockAddPathBeneathRule(r.fd, &landlock.PathBeneathAttr{AllowedAccess: rights & r.handled, ParentFd: fd}, 0); err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	return nil
}

// allowPort grants a right on a TCP port, whatever the address.
func (r ruleset) allowPort(port uint16, right uint64) error {
	if err := landlock.LandlockAddNetPortRule(r.fd, &landlock.NetPortAttr{AllowedAccess: right, Port: uint64(port)}, 0); err != nil {
		return fmt.Errorf("allow port %d: %w", port, err)
	}
	return nil
}

// allowExcept grants rights on all that lies in dir but for some paths below it, and only names to be listed on dir itself.
func (r ruleset) allowExcept(dir string, rights uint64, except func(path string) (whole, part bool)) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		whole, part := except(path)
		switch {
		case whole:
		case part:
			err = r.allowExcept(path, rights, except)
		default:
			err = r.allow(path, rights)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enterLandlock puts this thread, and what it starts, behind Landlock and seccomp. With mounts it also enters the command's
// directory, which then is this thread's alone.
func (w *Walls) enterLandlock(c Command, shields []shield) error {
	if w.found.mounts {
		if err := w.mount(shields); err != nil {
			return err
		}
		if err := w.enter(c.Dir); err != nil {
			return err
		}
	}
	rules, err := newRuleset()
	if err != nil {
		return err
	}
	defer unix.Close(rules.fd)
	if err := w.grant(rules, c); err != nil {
		return err
	}
	if err := renounce(); err != nil {
		return err
	}
	if err := landlock.LandlockRestrictSelf(rules.fd, 0); err != nil {
		return fmt.Errorf("enter landlock: %w", err)
	}
	if !w.found.supervised() {
		return w.filters.of(c).Install()
	}
	return w.filters.of(c).Supervise(w.writes)
}

// devices are those of the kernel alone that every program counts on. A terminal is one a process already has.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

func (w *Walls) grant(r ruleset, c Command) error {
	for _, dir := range append(system, w.place.Expose...) {
		if err := w.grantSystem(r, dir); err != nil {
			return err
		}
	}
	for _, path := range devices {
		if err := r.allow(path, device); err != nil {
			return err
		}
	}
	for _, port := range c.Connect {
		if err := r.allowPort(port, landlock.AccessNetConnectTCP); err != nil {
			return err
		}
	}
	for _, port := range c.Bind {
		if err := r.allowPort(port, landlock.AccessNetBindTCP); err != nil {
			return err
		}
	}
	for _, dir := range append([]string{w.place.Home, w.Temp(), "/dev/shm"}, w.place.Writable...) {
		if dir == "/dev/shm" && !w.found.mounts {
			continue
		}
		if err := r.allow(dir, write); err != nil {
			return err
		}
	}
	if err := r.allow("/proc", read); err != nil {
		return err
	}
	return w.grantWorkspace(r)
}

// grantSystem grants a directory of the system. Secrets that are not masked by mounts are left out.
func (w *Walls) grantSystem(r ruleset, dir string) error {
	if w.found.mounts {
		return r.allow(dir, read)
	}
	secrets := slices.DeleteFunc(w.secrets.Paths(), func(path string) bool { return !within(dir, path) })
	if len(secrets) == 0 {
		return r.allow(dir, read)
	}
	if err := r.allow(dir, landlock.AccessFSReadDir); err != nil {
		return err
	}
	return r.allowExcept(dir, read, func(path string) (whole, part bool) {
		for _, s := range secrets {
			whole, part = whole || path == s, part || within(path, s)
		}
		return whole, part
	})
}

// grantWorkspace grants the workspace. Without mounts every entry that is not protected is granted by itself, so that no
// new one can be made beside them.
func (w *Walls) grantWorkspace(r ruleset) error {
	if w.found.mounts {
		return r.allow(w.place.Workspace, write)
	}
	if err := r.allow(w.place.Workspace, read); err != nil {
		return err
	}
	names := w.names()
	return r.allowExcept(w.place.Workspace, write, func(path string) (whole, part bool) {
		for _, n := range names {
			at := filepath.Join(w.place.Workspace, n.path)
			if path == at {
				info, err := os.Lstat(path)
				return w.place.Lasting || n.inner == nil || err != nil || !info.IsDir(), n.inner != nil
			}
			for _, i := range n.inner {
				whole = whole || path == filepath.Join(at, i.path)
			}
		}
		return whole, false
	})
}

// supervised reports whether this process decides who changes the mode of a file.
func (f Found) supervised() bool { return f.Level == Landlock && !f.mounts }

// writes reports whether commands may write what lies at a path without symlinks, at landlock without mounts.
func (w *Walls) writes(path string) bool {
	if slices.ContainsFunc(append([]string{w.place.Home}, w.place.Writable...), func(dir string) bool { return within(dir, path) }) {
		return true
	}
	if !within(w.place.Workspace, path) {
		return false
	}
	for _, n := range w.names() {
		at := filepath.Join(w.place.Workspace, n.path)
		switch {
		case (n.inner == nil || w.place.Lasting) && within(at, path):
			return false
		case slices.ContainsFunc(n.inner, func(i name) bool { return within(filepath.Join(at, i.path), path) }):
			return false
		}
	}
	return true
}
