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

	"pocketcoder/sandbox/isolation/protection"
)

// Rights of Landlock. A file takes only some of them.
const (
	readFileRights  = landlock.AccessFSExecute | landlock.AccessFSReadFile
	writeFileRights = readFileRights | landlock.AccessFSWriteFile | landlock.AccessFSTruncate
	readRights      = readFileRights | landlock.AccessFSReadDir
	writeRights     = readRights | writeFileRights | landlock.AccessFSRemoveDir | landlock.AccessFSRemoveFile |
		landlock.AccessFSMakeDir | landlock.AccessFSMakeReg |
		landlock.AccessFSMakeSock | landlock.AccessFSMakeFifo | landlock.AccessFSMakeSym | landlock.AccessFSRefer
	deviceRights = landlock.AccessFSReadFile | landlock.AccessFSWriteFile | landlock.AccessFSIoctlDev
)

// handledAccess returns the rights that the kernel's Landlock denies unless a rule allows them. Landlock supports
// TCP from ABI 4 (Linux 6.7), devices from 5, signals and abstract sockets from 6, and sockets with a path from 9.
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

// minABI is the first ABI that supports TCP.
const minABI = 4

type ruleset struct {
	fd      int
	handled uint64
}

func newRuleset() (ruleset, error) {
	abi, err := landlock.LandlockGetABIVersion()
	if err != nil {
		return ruleset{}, fmt.Errorf("query Landlock version: %w", err)
	}
	attr := handledAccess(abi)
	fd, err := landlock.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return ruleset{}, fmt.Errorf("make landlock ruleset: %w", err)
	}
	return ruleset{fd, attr.HandledAccessFS}, nil
}

// allow allows rights on path and everything below it. It ignores a missing path. It also ignores a symlink as the
// last component: one in a workspace would allow access to its target.
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
		return fmt.Errorf("stat %s: %w", path, err)
	}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
	default:
		rights &= landlock.AccessFSExecute | landlock.AccessFSWriteFile | landlock.AccessFSReadFile |
			landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
	}
	if err := landlock.LandlockAddPathBeneathRule(r.fd, &landlock.PathBeneathAttr{AllowedAccess: rights & r.handled,
		ParentFd: fd}, 0); err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	return nil
}

// allowPort allows a right on a TCP port, at any address.
func (r ruleset) allowPort(port uint16, right uint64) error {
	if err := landlock.LandlockAddNetPortRule(r.fd, &landlock.NetPortAttr{AllowedAccess: right, Port: uint64(port)},
		0); err != nil {
		return fmt.Errorf("allow port %d: %w", port, err)
	}
	return nil
}

// allowExcept allows rights on all entries of dir, except some paths below it. except reports whether a path is
// excluded as a whole or in part. dir itself gets no rights.
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

// confineWithLandlock confines this thread and its children with Landlock and seccomp. If this process can mount, it
// also creates mounts for the thread and changes to the command's directory.
func (c *Confinement) confineWithLandlock(cmd Command, mounts []protection.Mount) error {
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

// devices are the device files that every program expects. /dev/tty names a terminal that the process has open
// already.
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

// allowSystemDir allows a directory of the system. Without mounts it excludes the secret files.
func (c *Confinement) allowSystemDir(r ruleset, dir string) error {
	if c.choice.canMount {
		return r.allow(dir, readRights)
	}
	secrets := slices.DeleteFunc(secretPaths(), func(path string) bool { return !within(dir, path) })
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

// allowWorkspace allows the workspace. Landlock cannot exclude one name from a directory in which a command may create
// others. So without mounts the caller must watch the protected names (see Choice.Mounts), except for a long-running
// program: it cannot create anything directly in the workspace.
func (c *Confinement) allowWorkspace(r ruleset) error {
	if c.choice.canMount || !c.access.LongRunning {
		return r.allow(c.access.Workspace, writeRights)
	}
	if err := r.allow(c.access.Workspace, readRights); err != nil {
		return err
	}
	names := c.protection.Names()
	return r.allowExcept(c.access.Workspace, writeRights, func(path string) (whole, part bool) {
		return slices.ContainsFunc(names, func(n protection.Name) bool {
			return path == filepath.Join(c.access.Workspace, n.Path)
		}), false
	})
}

// supervisesModes reports whether this process changes the modes of files for commands. Landlock does not control
// changes of modes. Without mounts, a command could change the mode of the data directory and lock out the control
// plane or let other users in, because both run as the same user.
func (c Choice) supervisesModes() bool { return c.Level == Landlock && !c.canMount }

// mayWrite reports whether commands can write path at landlock without mounts. path has no symlinks.
func (c *Confinement) mayWrite(path string) bool {
	if slices.ContainsFunc(append([]string{c.access.Home}, c.access.Writable...), func(dir string) bool {
		return within(dir, path)
	}) {
		return true
	}
	if !within(c.access.Workspace, path) {
		return false
	}
	for _, n := range c.protection.Names() {
		at := filepath.Join(c.access.Workspace, n.Path)
		switch {
		case (n.Children == nil || c.access.LongRunning) && within(at, path):
			return false
		case slices.ContainsFunc(n.Children, func(i protection.Name) bool { return within(filepath.Join(at, i.Path), path) }):
			return false
		}
	}
	return true
}
