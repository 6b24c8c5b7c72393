package protection

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

// Mount is a mount on a protected path of the workspace while a command runs. The kernel does not remove or rename a
// mount point.
type Mount struct {
	Path     string // absolute
	Writable bool   // its contents can be changed, except below other mounts
	Empty    bool   // it is a placeholder directory
}

// placeholderMode marks a placeholder: the sticky bit without any write permission. No other file has this mode. The
// call that creates the file sets it, so every process recognizes a placeholder, also after a crash.
const placeholderMode = unix.S_ISVTX | 0o555

// Workspace is a workspace with the placeholders that the commands of one worker share. Each worker holds a shared lock
// (flock(2)) on every placeholder, so that other workers do not remove the placeholder. Commands can lock placeholders
// too. With a shared lock, a placeholder stays longer. With an exclusive lock, new commands fail unless the worker
// already holds its lock. It is safe for concurrent use.
type Workspace struct {
	Dir         string // absolute, symlinks resolved
	LongRunning bool   // existing names are read-only; missing names get no placeholder

	mu     sync.Mutex
	locked map[string]*os.File
	users  int
	timer  *time.Timer
}

// placeholderLifetime is how long unused placeholders stay for the next command. Creating and removing them takes
// longer than a short command.
const placeholderLifetime = time.Second

// Protect creates missing placeholders and returns the mounts for a command. The placeholders stay at least until
// release is called. A command that manages worktrees can change the directory that MakeWorktrees makes.
func (w *Workspace) Protect(managesWorktrees bool) (mounts []Mount, release func(), err error) {
	if w.LongRunning {
		return w.protectExisting(), func() {}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locked == nil {
		w.locked = map[string]*os.File{}
	}
	w.users++
	mounts, err = w.protectNames(nil, w.Dir, w.Names(), managesWorktrees)
	if err != nil {
		w.release()
		return nil, nil, err
	}
	return mounts, sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.release()
	}), nil
}

// protectExisting returns read-only mounts for the protected names that exist. It skips symlinks, because a mount
// cannot cover them.
func (w *Workspace) protectExisting() (mounts []Mount) {
	for _, n := range w.Names() {
		path := filepath.Join(w.Dir, n.Path)
		var now unix.Stat_t
		if unix.Lstat(path, &now) == nil && !isPlaceholder(now) && now.Mode&unix.S_IFMT != unix.S_IFLNK {
			mounts = append(mounts, Mount{Path: path})
		}
	}
	return mounts
}

// protectNames appends the mounts that protect names in dir.
func (w *Workspace) protectNames(mounts []Mount, dir string, names []Name, managesWorktrees bool) ([]Mount, error) {
	for _, n := range names {
		path := filepath.Join(dir, n.Path)
		mode, err := w.lock(path, n.placeholder)
		if errors.Is(err, errSymlink) && n.instructions {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("protect %s: %w", path, err)
		}
		if mode == 0 {
			continue
		}
		placeholder := w.locked[path] != nil
		managed := n.Worktrees && managesWorktrees
		inner := !placeholder && mode == unix.S_IFDIR
		mounts = append(mounts, Mount{Path: path, Writable: inner && (n.Children != nil || managed),
			Empty: placeholder && mode == unix.S_IFDIR})
		if inner && !managed {
			if mounts, err = w.protectNames(mounts, path, w.ChildrenOf(n, path), managesWorktrees); err != nil {
				return nil, err
			}
		}
	}
	return mounts, nil
}

func (w *Workspace) release() {
	if w.users--; w.users > 0 {
		return
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(placeholderLifetime, w.RemoveUnused)
	}
	w.timer.Reset(placeholderLifetime)
}

// RemoveUnused removes the placeholders if no command uses them.
func (w *Workspace) RemoveUnused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users > 0 {
		return
	}
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(w.locked))) { // files before their directory
		removePlaceholder(w.locked[path])
	}
	clear(w.locked)
}

var errSymlink = errors.New("it is a symbolic link, whose target could be replaced: put a file or folder in its place")

// lock returns the type of the file at path (S_IFMT), or 0 if none exists. If the file is a placeholder, lock locks
// it. It creates a missing placeholder, unless kind is noPlaceholder.
func (w *Workspace) lock(path string, kind placeholderKind) (mode uint32, err error) {
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
		if f := w.locked[path]; f != nil {
			if isSameFile(f, now) && isPlaceholder(now) {
				return now.Mode & unix.S_IFMT, nil
			}
			f.Close() // it was replaced, or MakeWorktrees changed it
			delete(w.locked, path)
		}
		if !isPlaceholder(now) {
			return now.Mode & unix.S_IFMT, nil
		}
		if f := lockPlaceholder(path, kind); f != nil {
			w.locked[path] = f
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

// RemoveLeftovers removes the placeholders of a killed worker.
func (w *Workspace) RemoveLeftovers() {
	var sweep func(dir string, names []Name)
	sweep = func(dir string, names []Name) {
		for _, n := range names {
			path := filepath.Join(dir, n.Path)
			sweep(path, w.ChildrenOf(n, path))
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				removePlaceholder(os.NewFile(uintptr(fd), path))
			}
		}
	}
	sweep(w.Dir, w.Names())
}
