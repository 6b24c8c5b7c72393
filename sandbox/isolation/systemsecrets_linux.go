package isolation

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

// secretDirs are the directories in which administrators keep files that not every user may read.
var secretDirs = []string{"/etc", "/opt", "/usr/local"}

// secretList is a list of the secret files. Inotify reports changes, because a new scan takes many milliseconds.
type secretList struct {
	mu         sync.Mutex
	roots      []string
	inotify    int              // descriptor; 0 before the first scan
	watched    map[int32]string // directories by watch descriptor
	paths      map[string]bool
	scanned    time.Time
	incomplete bool // a watch is missing: scan again after rescanAfter
}

var systemSecrets = secretList{roots: secretDirs}

const (
	watchFor    = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ATTRIB | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	rescanAfter = time.Minute
)

// secretPaths returns the paths of the system's secret files: the files and directories below secretDirs that this
// process can read, but not every user of the machine can. They are sorted, and a directory represents everything in
// it.
//
// The first call scans the directories. The list is up to date at each call, because inotify reports changes to it. If
// the kernel allows too few inotify watches, it can be one minute old. A process has one list, because a scan reads
// tens of thousands of files.
func secretPaths() []string { return systemSecrets.current() }

func (l *secretList) current() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inotify == 0 || !l.update() || l.incomplete && time.Since(l.scanned) > rescanAfter {
		l.scan()
	}
	var paths []string
	for path := range l.paths {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func (l *secretList) scan() {
	if l.inotify > 0 {
		unix.Close(l.inotify)
	}
	l.watched, l.paths, l.scanned = map[int32]string{}, map[string]bool{}, time.Now()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	l.inotify, l.incomplete = fd, err != nil
	for _, root := range l.roots {
		l.addBelow(root)
	}
}

// addBelow adds the secrets at root and below it.
func (l *secretList) addBelow(root string) {
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // commands cannot read it either
		}
		info, err := entry.Info()
		if err != nil {
			return nil // it was removed
		}
		public := info.Mode().Perm()&0o004 != 0
		switch {
		case info.IsDir() && public:
			l.watch(path)
		case info.IsDir():
			if canRead(path) {
				l.paths[path] = true
			}
			return fs.SkipDir
		case info.Mode().IsRegular() && !public && canRead(path):
			l.paths[path] = true
		}
		return nil
	})
}

// watch adds an inotify watch. It is called before the directory is read, so no change is missed.
func (l *secretList) watch(dir string) {
	watch, err := unix.InotifyAddWatch(l.inotify, dir, watchFor)
	if err != nil {
		l.incomplete = true
		return
	}
	l.watched[int32(watch)] = dir
}

// update applies reported changes. It returns false if the kernel dropped reports.
func (l *secretList) update() bool {
	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.Read(l.inotify, buffer)
		if err != nil || n <= 0 {
			return l.incomplete || err == unix.EAGAIN
		}
		for b := buffer[:n]; len(b) >= unix.SizeofInotifyEvent; {
			watch, mask, size := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]),
				int(binary.NativeEndian.Uint32(b[12:]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
			b = b[unix.SizeofInotifyEvent+size:]
			if mask&unix.IN_Q_OVERFLOW != 0 {
				return false
			}
			if dir, ok := l.watched[watch]; ok {
				l.refresh(filepath.Join(dir, name))
			}
		}
	}
}

// refresh replaces the entries at path and below it.
func (l *secretList) refresh(path string) {
	for known := range l.paths {
		if within(path, known) {
			delete(l.paths, known)
		}
	}
	if !slices.ContainsFunc(l.roots, func(root string) bool { return within(root, path) }) {
		return
	}
	for known := range l.paths {
		if within(known, path) {
			return
		}
	}
	l.addBelow(path)
}

func canRead(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
