package isolation

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// protectiveMount is a mount on a protected path of the workspace while a command runs. The kernel does not remove
// or rename a mount point.
type protectiveMount struct {
	path     string // absolute
	writable bool   // its contents can be changed, except below other mounts
	empty    bool   // it is a placeholder directory
}

// placeholderMode marks a placeholder: the sticky bit without any write permission. No other file has this mode. The
// call that creates the file sets it, so every process recognizes a placeholder, also after a crash.
const placeholderMode = unix.S_ISVTX | 0o555

func (c *Confinement) protectedNames() (all []protectedName) {
	all = gitFileNames(c.access.Workspace) // first, because the mounts of other names must cover these
	for _, n := range projectNames {
		if n.instructions && c.access.LongRunning { // a person can allow OpenCode to write them
			continue
		}
		if n.instructions && shadows(c.access.Workspace, n.path) {
			n.placeholder = noPlaceholder
		}
		all = append(all, n)
	}
	all = append(all, bareRepositoryNames(c.access.Workspace)...)
	if home, err := os.UserHomeDir(); err == nil && filepath.Clean(home) == c.access.Workspace {
		all = append(all, homeNames()...)
	}
	return all
}

// placeholders are the placeholders that the commands of one worker share. The worker holds a shared lock (flock(2))
// on each, so other workers of the workspace do not remove it. Commands can lock placeholders too. With a shared
// lock, a placeholder stays longer. With an exclusive lock, new commands fail unless the worker holds its lock
// already.
type placeholders struct {
	mu     sync.Mutex
	locked map[string]*os.File
	users  int
	timer  *time.Timer
}

// placeholderLifetime is how long unused placeholders stay for the next command. Creating and removing them takes
// longer than a short command.
const placeholderLifetime = time.Second

// protect creates missing placeholders and returns the mounts for a command. The placeholders stay at least until
// release is called.
func (c *Confinement) protect() (mounts []protectiveMount, leave func(), err error) {
	if c.access.LongRunning {
		return c.protectExisting(), func() {}, nil
	}
	c.placeholders.mu.Lock()
	defer c.placeholders.mu.Unlock()
	if c.placeholders.locked == nil {
		c.placeholders.locked = map[string]*os.File{}
	}
	c.placeholders.users++
	mounts, err = c.placeholders.protectNames(nil, c.access.Workspace, c.protectedNames())
	if err != nil {
		c.placeholders.release()
		return nil, nil, err
	}
	return mounts, sync.OnceFunc(func() {
		c.placeholders.mu.Lock()
		defer c.placeholders.mu.Unlock()
		c.placeholders.release()
	}), nil
}

// protectExisting returns read-only mounts for the protected names that exist. It skips symlinks, because a mount
// cannot cover them.
func (c *Confinement) protectExisting() (mounts []protectiveMount) {
	for _, n := range c.protectedNames() {
		path := filepath.Join(c.access.Workspace, n.path)
		var now unix.Stat_t
		if unix.Lstat(path, &now) == nil && !isPlaceholder(now) && now.Mode&unix.S_IFMT != unix.S_IFLNK {
			mounts = append(mounts, protectiveMount{path: path})
		}
	}
	return mounts
}

// protectNames appends the mounts that protect names in dir.
func (s *placeholders) protectNames(mounts []protectiveMount, dir string,
	names []protectedName) ([]protectiveMount, error) {
	for _, n := range names {
		path := filepath.Join(dir, n.path)
		mode, err := s.lock(path, n.placeholder)
		if errors.Is(err, errSymlink) && n.instructions {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("protect %s: %w", path, err)
		}
		if mode == 0 {
			continue
		}
		stub := s.locked[path] != nil
		inner := n.children != nil && !stub && mode == unix.S_IFDIR
		mounts = append(mounts, protectiveMount{path: path, writable: inner, empty: stub && mode == unix.S_IFDIR})
		if inner {
			if mounts, err = s.protectNames(mounts, path, n.children); err != nil {
				return nil, err
			}
		}
	}
	return mounts, nil
}

func (s *placeholders) release() {
	if s.users--; s.users > 0 {
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(placeholderLifetime, s.removeUnused)
	}
	s.timer.Reset(placeholderLifetime)
}

// removeUnused removes the placeholders if no command uses them.
func (s *placeholders) removeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 {
		return
	}
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(s.locked))) { // files before their directory
		removePlaceholder(s.locked[path])
	}
	clear(s.locked)
}

var errSymlink = errors.New("it is a symbolic link, whose target could be replaced: put a file or folder in its place")

// lock returns the type of the file at path (S_IFMT), or 0 if none exists. If the file is a placeholder, lock locks
// it. It creates a missing placeholder, unless kind is noPlaceholder.
func (s *placeholders) lock(path string, kind placeholderKind) (mode uint32, err error) {
	for range 100 { // other workers create and remove placeholders too
		var now unix.Stat_t
		err := unix.Lstat(path, &now)
		if errors.Is(err, unix.ENOENT) {
			if kind == noPlaceholder {
				return 0, nil
			}
			if err := createPlaceholder(path, kind); err != nil && !errors.Is(err, unix.EEXIST) {
				return 0, err
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		if now.Mode&unix.S_IFMT == unix.S_IFLNK {
			return 0, errSymlink
		}
		if f := s.locked[path]; f != nil {
			if isSameFile(f, now) {
				return now.Mode & unix.S_IFMT, nil
			}
			f.Close() // it was replaced
			delete(s.locked, path)
		}
		if !isPlaceholder(now) {
			return now.Mode & unix.S_IFMT, nil
		}
		if f := lockPlaceholder(path, kind); f != nil {
			s.locked[path] = f
			return now.Mode & unix.S_IFMT, nil
		}
	}
	return 0, errors.New("it keeps changing, or a command has locked it")
}

// lockPlaceholder locks a placeholder so that no worker removes it. It returns nil if that fails.
func lockPlaceholder(path string, kind placeholderKind) *os.File {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		return nil
	}
	var now unix.Stat_t
	if unix.Lstat(path, &now) == nil && isPlaceholder(now) && isSameFile(f, now) &&
		(kind != dotPlaceholder || now.Size > 0) {
		return f
	}
	removePlaceholder(f)
	return nil
}

func isSameFile(f *os.File, now unix.Stat_t) bool {
	var s unix.Stat_t
	return unix.Fstat(int(f.Fd()), &s) == nil && s.Dev == now.Dev && s.Ino == now.Ino
}

func isPlaceholder(s unix.Stat_t) bool {
	kind := s.Mode & unix.S_IFMT
	return s.Mode&(unix.S_ISVTX|0o222) == unix.S_ISVTX && (kind == unix.S_IFDIR || kind == unix.S_IFREG && s.Size <= 1)
}

// exists reports whether path names a file that is not a placeholder.
func exists(path string) bool {
	var now unix.Stat_t
	return unix.Lstat(path, &now) == nil && !isPlaceholder(now)
}

func createPlaceholder(path string, kind placeholderKind) error {
	if kind == directoryPlaceholder {
		return unix.Mkdir(path, placeholderMode)
	}
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, placeholderMode&^0o111)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if kind == dotPlaceholder {
		_, err = unix.Write(fd, []byte("."))
	}
	return err
}

// removePlaceholder closes f and removes it if no other process has locked it and it is unchanged. The kernel removes a
// directory only if it is empty.
func removePlaceholder(f *os.File) {
	defer f.Close()
	var now unix.Stat_t
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Lstat(f.Name(), &now) != nil ||
		!isPlaceholder(now) || !isSameFile(f, now) {
		return
	}
	if now.Mode&unix.S_IFMT == unix.S_IFDIR {
		unix.Rmdir(f.Name())
	} else {
		unix.Unlink(f.Name())
	}
}

// removeLeftovers removes the placeholders of a killed worker.
func (c *Confinement) removeLeftovers() {
	var sweep func(dir string, names []protectedName)
	sweep = func(dir string, names []protectedName) {
		for _, n := range names {
			path := filepath.Join(dir, n.path)
			sweep(path, n.children)
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				removePlaceholder(os.NewFile(uintptr(fd), path))
			}
		}
	}
	sweep(c.access.Workspace, append(c.protectedNames(), bareRepositoryPlaceholders...))
}
