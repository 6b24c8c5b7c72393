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

// shield is a mount that lies on a protected path of the workspace while a command runs. The kernel refuses to remove or
// rename what a mount lies on.
type shield struct {
	path     string // absolute
	writable bool   // what is in it may be changed, but for further shields
	empty    bool   // it is a stub for a folder
}

// stubMode marks a stub: nothing else has the sticky bit and nobody's right to write. The mark is set in the same call
// that makes the file, so that whoever finds one, in whichever process and after whichever crash, knows it for a stub.
const stubMode = unix.S_ISVTX | 0o555

// names are the protected names of the workspace.
func (w *Walls) names() (all []name) {
	for _, n := range protected {
		if n.instructions && w.place.Lasting { // a person may let OpenCode write them
			continue
		}
		if n.instructions && hides(w.place.Workspace, n.path) {
			n.stub = none
		}
		all = append(all, n)
	}
	if !exists(filepath.Join(w.place.Workspace, ".git")) {
		all = append(all, bareNames(w.place.Workspace)...)
	}
	if home, err := os.UserHomeDir(); err == nil && filepath.Clean(home) == w.place.Workspace {
		all = append(all, inHome()...)
	}
	return all
}

// stubs are those that the commands of one worker share. Each is held by a shared lock on it (flock(2)), by which workers of
// the same workspace know that they need one another's. Commands can lock them too: shared, a stub stays a little longer;
// for themselves alone, no command starts that does not find it held already.
type stubs struct {
	mu    sync.Mutex
	held  map[string]*os.File
	users int
	timer *time.Timer
}

// linger is how long unused stubs are kept for the next command: making and removing them takes longer than a short command.
const linger = time.Second

// shields makes the stubs that are missing and returns what to mount. They stay at least until leave.
func (w *Walls) shields() (shields []shield, leave func(), err error) {
	if w.place.Lasting {
		return w.present(), func() {}, nil
	}
	w.stubs.mu.Lock()
	defer w.stubs.mu.Unlock()
	if w.stubs.held == nil {
		w.stubs.held = map[string]*os.File{}
	}
	w.stubs.users++
	shields, err = w.stubs.add(nil, w.place.Workspace, w.names())
	if err != nil {
		w.stubs.leave()
		return nil, nil, err
	}
	return shields, sync.OnceFunc(func() {
		w.stubs.mu.Lock()
		defer w.stubs.mu.Unlock()
		w.stubs.leave()
	}), nil
}

// present returns the protected names that exist, each to be read-only as a whole. A symlink is left out: nothing can be
// mounted on it.
func (w *Walls) present() (shields []shield) {
	for _, n := range w.names() {
		path := filepath.Join(w.place.Workspace, n.path)
		var now unix.Stat_t
		if unix.Lstat(path, &now) == nil && !isStub(now) && now.Mode&unix.S_IFMT != unix.S_IFLNK {
			shields = append(shields, shield{path: path})
		}
	}
	return shields
}

// add appends what protects the names in dir.
func (s *stubs) add(shields []shield, dir string, names []name) ([]shield, error) {
	for _, n := range names {
		path := filepath.Join(dir, n.path)
		mode, err := s.hold(path, n.stub)
		if errors.Is(err, errSymlink) && n.instructions {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("protect %s: %w", path, err)
		}
		if mode == 0 {
			continue
		}
		stub := s.held[path] != nil
		inner := n.inner != nil && !stub && mode == unix.S_IFDIR
		shields = append(shields, shield{path: path, writable: inner, empty: stub && mode == unix.S_IFDIR})
		if inner {
			if shields, err = s.add(shields, path, n.inner); err != nil {
				return nil, err
			}
		}
	}
	return shields, nil
}

// leave lets go of the stubs for one command.
func (s *stubs) leave() {
	if s.users--; s.users > 0 {
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(linger, s.clear)
	}
	s.timer.Reset(linger)
}

// clear removes the stubs that nobody uses.
func (s *stubs) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 {
		return
	}
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(s.held))) { // what lies in a folder before the folder
		removeStub(s.held[path])
	}
	clear(s.held)
}

var errSymlink = errors.New("it is a symbolic link, and what it leads to could be exchanged: put a file or folder in its place")

// hold returns the kind of file at path, which is then held if it is a stub. One is made when nothing is there and kind is
// not none.
func (s *stubs) hold(path string, kind stub) (mode uint32, err error) {
	for range 100 { // others make and remove stubs too
		var now unix.Stat_t
		err := unix.Lstat(path, &now)
		if errors.Is(err, unix.ENOENT) {
			if kind == none {
				return 0, nil
			}
			if err := makeStub(path, kind); err != nil && !errors.Is(err, unix.EEXIST) {
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
		if f := s.held[path]; f != nil {
			if same(f, now) {
				return now.Mode & unix.S_IFMT, nil
			}
			f.Close() // a person has put something else there
			delete(s.held, path)
		}
		if !isStub(now) {
			return now.Mode & unix.S_IFMT, nil
		}
		if f := lockStub(path, kind); f != nil {
			s.held[path] = f
			return now.Mode & unix.S_IFMT, nil
		}
	}
	return 0, errors.New("it keeps changing, or a command has locked it")
}

// lockStub returns a stub that will stay, or nil.
func lockStub(path string, kind stub) *os.File {
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
	if unix.Lstat(path, &now) == nil && isStub(now) && same(f, now) && (kind != itself || now.Size > 0) {
		return f
	}
	removeStub(f)
	return nil
}

func same(f *os.File, now unix.Stat_t) bool {
	var s unix.Stat_t
	return unix.Fstat(int(f.Fd()), &s) == nil && s.Dev == now.Dev && s.Ino == now.Ino
}

func isStub(s unix.Stat_t) bool {
	kind := s.Mode & unix.S_IFMT
	return s.Mode&(unix.S_ISVTX|0o222) == unix.S_ISVTX && (kind == unix.S_IFDIR || kind == unix.S_IFREG && s.Size <= 1)
}

// exists reports whether a path names something other than a stub.
func exists(path string) bool {
	var now unix.Stat_t
	return unix.Lstat(path, &now) == nil && !isStub(now)
}

func makeStub(path string, kind stub) error {
	if kind == folder {
		return unix.Mkdir(path, stubMode)
	}
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, stubMode&^0o111)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if kind == itself {
		_, err = unix.Write(fd, []byte("."))
	}
	return err
}

// removeStub lets go of a stub and removes it when nobody else holds it and it is as it was made. The kernel sees to it
// that a folder is empty.
func removeStub(f *os.File) {
	defer f.Close()
	var now unix.Stat_t
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Lstat(f.Name(), &now) != nil || !isStub(now) || !same(f, now) {
		return
	}
	if now.Mode&unix.S_IFMT == unix.S_IFDIR {
		unix.Rmdir(f.Name())
	} else {
		unix.Unlink(f.Name())
	}
}

// sweep removes the stubs that a killed worker has left.
func (w *Walls) sweep() {
	var sweep func(dir string, names []name)
	sweep = func(dir string, names []name) {
		for _, n := range names {
			path := filepath.Join(dir, n.path)
			sweep(path, n.inner)
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				removeStub(os.NewFile(uintptr(fd), path))
			}
		}
	}
	sweep(w.place.Workspace, append(w.names(), bareStubs...))
}
