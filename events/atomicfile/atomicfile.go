// Package atomicfile writes files whole or not at all, and keeps other processes from those that are in use.
//
// It must not know what a file holds.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Write replaces the file at path by one of mode 0600, and returns when it is on disk.
func Write(path string, content []byte) error {
	part, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.Write(content)
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir returns when the names in a directory are on disk.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ErrLocked is the error of Lock for a lock that another process has.
var ErrLocked = errors.New("in use by another process")

// Lock takes the lock that the file at path stands for, until unlock or the end of this process. It makes the file. It
// does not wait.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return LockOpen(f)
}

// LockOpen is Lock for an open file or directory. unlock closes it, and so does an error.
func LockOpen(f *os.File) (unlock func(), err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() {
		// closing is not enough: a child that was just forked has it open until its exec
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}, nil
}
