// Package realdir opens directories of a workspace without following a symbolic link, and files without blocking. An
// os.Root stays inside its directory, but follows links there, and a command can put such a link in the place of a
// directory at any time: from a folder of the project to .git.
//
// It must not know what is in a directory.
package realdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNotDirectory means that a symbolic link or a file is in the place of a directory.
var ErrNotDirectory = errors.New("not a directory")

// ErrNotRegular means that a directory, a pipe or a device is in the place of a file.
var ErrNotRegular = errors.New("it is not a regular file")

// OpenFile opens a regular file for reading. A command may put a FIFO in its place, whose open or read would never end.
func OpenFile(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Open opens a directory that is no symbolic link, by its name in parent. It returns ErrNotDirectory if something else
// is in its place.
func Open(parent *os.Root, name string) (*os.Root, error) {
	named, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := checkDirectory(named); err != nil {
		return nil, err
	}
	dir, err := parent.OpenRoot(name + "/.") // as a directory: opening a named pipe would block
	if err != nil {
		return nil, err
	}
	opened, err := dir.Stat(".")
	if err == nil && !os.SameFile(named, opened) {
		err = fmt.Errorf("%w: %s was replaced while it was opened", ErrNotDirectory, name)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

func checkDirectory(named fs.FileInfo) error {
	switch {
	case named.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%w: %s is a symbolic link", ErrNotDirectory, named.Name())
	case !named.IsDir():
		return fmt.Errorf("%w: %s is a file", ErrNotDirectory, named.Name())
	}
	return nil
}

// OpenParent opens the directory of a path below root. It refuses a symbolic link in the path. It creates missing
// directories if create is true.
func OpenParent(root *os.Root, path string, create bool) (*os.Root, error) {
	dir, err := root.OpenRoot(".")
	for name := range strings.SplitSeq(filepath.Dir(filepath.Clean(path)), string(filepath.Separator)) {
		if err != nil {
			return nil, err
		}
		parent := dir
		dir, err = Open(parent, name)
		if create && errors.Is(err, fs.ErrNotExist) {
			if err = parent.Mkdir(name, 0o755); err == nil || errors.Is(err, fs.ErrExist) {
				dir, err = Open(parent, name)
			}
		}
		parent.Close()
	}
	return dir, err
}
