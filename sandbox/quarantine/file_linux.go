package quarantine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/wire"
)

// Limits of one name that is read into memory.
const (
	maxBytes = 16 << 20
	maxFiles = 2000
)

var (
	errTooLarge = fmt.Errorf("it has more than %d MiB or %d files", maxBytes>>20, maxFiles)
	errSpecial  = errors.New("it is neither a file, a folder nor a symbolic link")
)

// file is a copy of a file, a symbolic link or a folder in memory.
type file struct {
	mode    fs.FileMode // type and permissions
	data    []byte      // of a regular file; target of a link
	entries map[string]*file
	stamp   stamp // of the file on disk that is known to be equal
}

// stamp changes with each change of a file. It is zero if the file has changed a moment ago: the next change could have
// the same time.
type stamp struct {
	dev, ino uint64
	size     int64
	changed  syscall.Timespec
}

// clockStep is longer than the step of the clock that file systems use.
const clockStep = 20 * time.Millisecond

func changed(info fs.FileInfo) time.Time { return time.Unix(info.Sys().(*syscall.Stat_t).Ctim.Unix()) }

func stampOf(info fs.FileInfo) stamp {
	s := info.Sys().(*syscall.Stat_t)
	if time.Since(changed(info)).Abs() < clockStep {
		return stamp{}
	}
	return stamp{uint64(s.Dev), s.Ino, s.Size, s.Ctim}
}

// budget is what may still be read.
type budget struct{ bytes, files int64 }

func readAll(root *os.Root, name string) (*file, error) {
	return read(root, name, &budget{maxBytes, maxFiles})
}

// read copies what has a name, without following a link at it.
func read(root *os.Root, name string, b *budget) (f *file, err error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	f = &file{mode: info.Mode() & (fs.ModeType | fs.ModePerm), stamp: stampOf(info)}
	if b.files--; b.files < 0 {
		return nil, errTooLarge
	}
	switch f.mode.Type() {
	case 0:
		f.data, err = readRegular(root, name, info, b)
	case fs.ModeSymlink:
		var target string
		target, err = root.Readlink(name)
		f.data = []byte(target)
	case fs.ModeDir:
		var names []string
		names, err = list(root, name)
		f.entries = map[string]*file{}
		for _, n := range names {
			if f.entries[n], err = read(root, path.Join(name, n), b); err != nil {
				return nil, err
			}
		}
	}
	return f, err
}

func readRegular(root *os.Root, name string, info fs.FileInfo, b *budget) ([]byte, error) {
	f, err := openRegular(root, name, info)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, b.bytes+1))
	if b.bytes -= int64(len(data)); b.bytes < 0 {
		return nil, errTooLarge
	}
	return data, err
}

// openRegular opens a regular file, if it is still the one that info describes.
func openRegular(root *os.Root, name string, info fs.FileInfo) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(now, info) {
		f.Close()
		return nil, fmt.Errorf("%s was replaced", name)
	}
	return f, nil
}

func list(root *os.Root, name string) ([]string, error) {
	dir, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0) // opening a named pipe would block
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// write creates the file. The name must be free. It leaves out special files.
func (f *file) write(root *os.Root, name string) error {
	switch f.mode.Type() {
	case 0:
		to, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode.Perm())
		if err != nil {
			return err
		}
		_, err = to.Write(f.data)
		return errors.Join(err, to.Chmod(f.mode.Perm()), to.Close())
	case fs.ModeSymlink:
		return root.Symlink(string(f.data), name)
	case fs.ModeDir:
		if err := root.Mkdir(name, 0o700); err != nil {
			return err
		}
		for n, e := range f.entries {
			if err := e.write(root, path.Join(name, n)); err != nil {
				return err
			}
		}
		return root.Chmod(name, f.mode.Perm())
	}
	return nil
}

// isAt reports whether the name has the same type, permissions and content as f. With trustStamps it does not read a
// file that has the same stamp. A program that has mapped a file into its memory can change it without changing the
// stamp.
func (f *file) isAt(root *os.Root, name string, trustStamps bool) bool {
	info, err := root.Lstat(name)
	if err != nil || info.Mode()&(fs.ModeType|fs.ModePerm) != f.mode {
		return false
	}
	now := stampOf(info)
	known := trustStamps && now != stamp{} && now == f.stamp
	if f.mode.IsDir() {
		if !known {
			names, err := list(root, name)
			if err != nil || !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(maps.Keys(f.entries))) {
				return false
			}
		}
		for n, e := range f.entries {
			if !e.isAt(root, path.Join(name, n), trustStamps) {
				return false
			}
		}
	} else if !known {
		other, err := read(root, name, &budget{int64(len(f.data)), 1})
		if err != nil || other.mode != f.mode || !bytes.Equal(other.data, f.data) {
			return false
		}
	}
	f.stamp = now
	return true
}

func (f *file) isSpecial() bool { return f.mode.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 }

// prune removes special files from a folder.
func (f *file) prune() {
	maps.DeleteFunc(f.entries, func(_ string, e *file) bool { return e.isSpecial() })
	for _, e := range f.entries {
		e.prune()
	}
}

// merge returns a folder with the files of two folders, where newer ones replace older ones. Of other files it returns
// the newer one. It may change both.
func merge(older, newer *file) *file {
	if older == nil || !older.mode.IsDir() || !newer.mode.IsDir() {
		return newer
	}
	for n, e := range older.entries {
		if other := newer.entries[n]; other != nil {
			newer.entries[n] = merge(e, other)
		} else {
			newer.entries[n] = e
		}
	}
	return newer
}

// contains reports whether f has everything that a part has. Special files do not count.
func (f *file) contains(part *file) bool {
	if part.isSpecial() {
		return true
	}
	if f == nil || f.mode.Type() != part.mode.Type() || !bytes.Equal(f.data, part.data) {
		return false
	}
	for n, e := range part.entries {
		if !f.entries[n].contains(e) {
			return false
		}
	}
	return true
}

// describe returns what a person reads about the file.
func (f *file) describe() (q wire.Quarantined) {
	switch f.mode.Type() {
	case fs.ModeSymlink:
		q.Kind, q.Text = wire.LinkKind, printable(string(f.data))
	case fs.ModeDir:
		var lines strings.Builder
		f.walk("", func(name string, e *file) {
			q.Files++
			q.Bytes += int64(len(e.data))
			if e.mode.Type() == fs.ModeSymlink {
				fmt.Fprintf(&lines, "%s -> %s\n", printable(name), printable(string(e.data)))
				return
			}
			fmt.Fprintf(&lines, "%s %d\n", printable(name), len(e.data))
		})
		q.Kind, q.Text = wire.FolderKind, lines.String()
	default:
		q.Kind, q.Bytes = wire.FileKind, int64(len(f.data))
		if utf8.Valid(f.data) && !bytes.ContainsRune(f.data, 0) {
			q.Text = string(f.data)
		}
	}
	return q
}

// walk calls fn for each file below a folder, in the order of their names.
func (f *file) walk(at string, fn func(name string, e *file)) {
	for _, n := range slices.Sorted(maps.Keys(f.entries)) {
		e := f.entries[n]
		if e.mode.IsDir() {
			e.walk(path.Join(at, n), fn)
			continue
		}
		fn(path.Join(at, n), e)
	}
}

// printable returns a name on one line.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}
