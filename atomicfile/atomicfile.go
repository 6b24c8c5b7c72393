// Package atomicfile writes files whole or not at all.
//
// It must not know what a file holds.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
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
