package systemsecrets

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// directories are the directories of the system in which an administrator keeps files that are not for every user.
var directories = []string{"/etc", "/opt", "/usr/local"}

// List holds the files and directories below directories that not every user of the machine may read, but this process
// may. Inotify reports what changes, because a list takes many milliseconds.
type List struct {
	mu      sync.Mutex
	places  []string
	inotify int              // 0 before the first list
	watched map[int32]string // directories by watch
	paths   map[string]bool
	listed  time.Time
	blind   bool // not every directory could be watched: the list is made anew each minute
}

const (
	watchFor = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ATTRIB | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	relist   = time.Minute
)

// New returns a list that is empty until Paths is called.
func New() *List { return &List{places: directories} }

// Paths returns the secret files and directories. A directory stands for all that is in it.
func (s *List) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inotify == 0 || !s.update() || s.blind && time.Since(s.listed) > relist {
		s.list()
	}
	var paths []string
	for path := range s.paths {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func (s *List) list() {
	s.close()
	s.watched, s.paths, s.listed = map[int32]string{}, map[string]bool{}, time.Now()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	s.inotify, s.blind = fd, err != nil
	for _, place := range s.places {
		s.walk(place)
	}
}

// walk adds the secrets at a path and below.
func (s *List) walk(root string) {
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error { // what cannot be read is no secret to hide
		if err != nil {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		public := info.Mode().Perm()&0o004 != 0
		switch {
		case info.IsDir() && public:
			s.watch(path)
		case info.IsDir():
			if mayRead(path) {
				s.paths[path] = true
			}
			return fs.SkipDir
		case info.Mode().IsRegular() && !public && mayRead(path):
			s.paths[path] = true
		}
		return nil
	})
}

// watch is called before the directory is listed, so no change is missed.
func (s *List) watch(dir string) {
	watch, err := unix.InotifyAddWatch(s.inotify, dir, watchFor)
	if err != nil {
		s.blind = true
		return
	}
	s.watched[int32(watch)] = dir
}

// update looks at what has changed. It returns false when the kernel has dropped reports.
func (s *List) update() bool {
	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.Read(s.inotify, buffer)
		if err != nil || n <= 0 {
			return s.blind || err == unix.EAGAIN
		}
		for b := buffer[:n]; len(b) >= unix.SizeofInotifyEvent; {
			watch, mask, size := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
			b = b[unix.SizeofInotifyEvent+size:]
			if mask&unix.IN_Q_OVERFLOW != 0 {
				return false
			}
			if dir, ok := s.watched[watch]; ok {
				s.look(filepath.Join(dir, name))
			}
		}
	}
}

// look replaces what is known about a path and all below it.
func (s *List) look(path string) {
	for known := range s.paths {
		if within(path, known) {
			delete(s.paths, known)
		}
	}
	if !slices.ContainsFunc(s.places, func(place string) bool { return within(place, path) }) {
		return
	}
	for known := range s.paths {
		if within(known, path) {
			return
		}
	}
	s.walk(path)
}

// Close removes the inotify watches.
func (s *List) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

func (s *List) close() {
	if s.inotify > 0 {
		unix.Close(s.inotify)
	}
	s.inotify = 0
}

func mayRead(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// within compares by path component; both are clean.
func within(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
