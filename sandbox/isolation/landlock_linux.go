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
	readFileRights  = landlock.AccessFSExecute | landlock.AccessFSReadFile
	writeFileRights = readFileRights | landlock.AccessFSWriteFile | landlock.AccessFSTruncate
	readRights      = readFileRights | landlock.AccessFSReadDir
	writeRights     = readRights | writeFileRights | landlock.AccessFSRemoveDir | landlock.AccessFSRemoveFile | landlock.AccessFSMakeDir | landlock.AccessFSMakeReg |
		landlock.AccessFSMakeSock | landlock.AccessFSMakeFifo | landlock.AccessFSMakeSym | landlock.AccessFSRefer
	deviceRights = landlock.AccessFSReadFile | landlock.AccessFSWriteFile | landlock.AccessFSIoctlDev
)

// handled is what a kernel's Landlock can deny: all of it is denied but for the rules. From ABI 4 (Linux 6.7) on it knows
// TCP, from 5 devices, from 6 signals and abstract sockets, from 9 sockets with a path.
func handledAccess(abi int) landlock.RulesetAttr {
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
	attr := handledAccess(abi)
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
func (c *Confinement) confineWithLandlock(cmd Command, mounts []protectiveMount) error {
	if c.choice.canMount {
		if err := c.setUpMounts(mounts); err != nil {
			return err
		}
		if err := c.changeDir(cmd.Dir); err != nil {
			return err
		}
	}
	rules, err := newRuleset()
	if err != nil {
		return err
	}
	defer unix.Close(rules.fd)
	if err := c.allowAccess(rules, cmd); err != nil {
		return err
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if err := landlock.LandlockRestrictSelf(rules.fd, 0); err != nil {
		return fmt.Errorf("enter landlock: %w", err)
	}
	if !c.choice.supervisesModes() {
		return c.filters.forCommand(cmd).Install()
	}
	return c.filters.forCommand(cmd).Supervise(c.mayWrite)
}

// devices are those of the kernel alone that every program counts on. A terminal is one a process already has.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

func (c *Confinement) allowAccess(r ruleset, cmd Command) error {
	for _, dir := range append(systemDirs, c.access.Expose...) {
		if err := c.allowSystemDir(r, dir); err != nil {
			return err
		}
	}
	for _, path := range devices {
		if err := r.allow(path, deviceRights); err != nil {
			return err
		}
	}
	for _, port := range cmd.Connect {
		if err := r.allowPort(port, landlock.AccessNetConnectTCP); err != nil {
			return err
		}
	}
	for _, port := range cmd.Bind {
		if err := r.allowPort(port, landlock.AccessNetBindTCP); err != nil {
			return err
		}
	}
	for _, dir := range append([]string{c.access.Home, c.TempDir(), "/dev/shm"}, c.access.Writable...) {
		if dir == "/dev/shm" && !c.choice.canMount {
			continue
		}
		if err := r.allow(dir, writeRights); err != nil {
			return err
		}
	}
	if err := r.allow("/proc", readRights); err != nil {
		return err
	}
	return c.allowWorkspace(r)
}

// grantSystem grants a directory of the system. Secrets that are not masked by mounts are left out.
func (c *Confinement) allowSystemDir(r ruleset, dir string) error {
	if c.choice.canMount {
		return r.allow(dir, readRights)
	}
	secrets := slices.DeleteFunc(c.secrets.Paths(), func(path string) bool { return !within(dir, path) })
	if len(secrets) == 0 {
		return r.allow(dir, readRights)
	}
	if err := r.allow(dir, landlock.AccessFSReadDir); err != nil {
		return err
	}
	return r.allowExcept(dir, readRights, func(path string) (whole, part bool) {
		for _, s := range secrets {
			whole, part = whole || path == s, part || within(path, s)
		}
		return whole, part
	})
}

// grantWorkspace grants the workspace. Without mounts every entry that is not protected is granted by itself, so that no
// new one can be made beside them.
func (c *Confinement) allowWorkspace(r ruleset) error {
	if c.choice.canMount {
		return r.allow(c.access.Workspace, writeRights)
	}
	if err := r.allow(c.access.Workspace, readRights); err != nil {
		return err
	}
	names := c.protectedNames()
	return r.allowExcept(c.access.Workspace, writeRights, func(path string) (whole, part bool) {
		for _, n := range names {
			at := filepath.Join(c.access.Workspace, n.path)
			if path == at {
				info, err := os.Lstat(path)
				return c.access.LongRunning || n.children == nil || err != nil || !info.IsDir(), n.children != nil
			}
			for _, i := range n.children {
				whole = whole || path == filepath.Join(at, i.path)
			}
		}
		return whole, false
	})
}

// supervised reports whether this process decides who changes the mode of a file.
func (choice Choice) supervisesModes() bool { return choice.Level == Landlock && !choice.canMount }

// writes reports whether commands may write what lies at a path without symlinks, at landlock without mounts.
func (c *Confinement) mayWrite(path string) bool {
	if slices.ContainsFunc(append([]string{c.access.Home}, c.access.Writable...), func(dir string) bool { return within(dir, path) }) {
		return true
	}
	if !within(c.access.Workspace, path) {
		return false
	}
	for _, n := range c.protectedNames() {
		at := filepath.Join(c.access.Workspace, n.path)
		switch {
		case (n.children == nil || c.access.LongRunning) && within(at, path):
			return false
		case slices.ContainsFunc(n.children, func(i protectedName) bool { return within(filepath.Join(at, i.path), path) }):
			return false
		}
	}
	return true
}
