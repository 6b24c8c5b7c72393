// Package projectionstest opens read models for tests. It creates the tables once per process, and copies them for
// each new file, because creating them takes most of the processor time of opening.
package projectionstest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"pocketcoder/events/log"
	"pocketcoder/projections"
)

// empty is a file of read models that has applied no event.
var empty struct {
	sync.Mutex
	name    string
	content []byte
}

// Open opens the read models in dir like projections.Open. If dir has none, it gets empty ones first.
func Open(ctx context.Context, dir string, log *log.Log) (*projections.Model, error) {
	if err := create(ctx, log); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, empty.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write(empty.content)
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return projections.Open(ctx, dir, log)
}

// create creates the empty file, if it was not created before.
func create(ctx context.Context, log *log.Log) error {
	empty.Lock()
	defer empty.Unlock()
	if empty.content != nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "projections-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m, err := projections.Open(ctx, dir, log)
	if err != nil {
		return err
	}
	if err := m.Close(); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		return errors.Join(err, errors.New("read models are not one file"))
	}
	empty.name = files[0].Name()
	empty.content, err = os.ReadFile(filepath.Join(dir, empty.name))
	return err
}
