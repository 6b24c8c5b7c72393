package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"pocketcoder/events"
)

type RebuildResult struct {
	Events        uint64        // applied
	Duration      time.Duration // of applying them
	Before, After string        // digests of the old file and the new one at the same sequence
}

// Rebuild applies the whole log to a new file beside the current one, which continues to serve queries. It replaces
// the current file when the new one has caught up. It calls progress, on the caller's goroutine, with the sequence
// reached and the last one. Only one rebuild runs at a time; a second call returns an error at once.
func (m *Model) Rebuild(ctx context.Context, progress func(done, total uint64)) (RebuildResult, error) {
	if !m.rebuilding.TryLock() {
		return RebuildResult{}, errors.New("rebuild read models: another rebuild is running")
	}
	defer m.rebuilding.Unlock()
	r, err := m.rebuild(ctx, progress)
	if err != nil {
		return RebuildResult{}, fmt.Errorf("rebuild read models: %w", err)
	}
	return r, nil
}

func (m *Model) rebuild(ctx context.Context, progress func(done, total uint64)) (RebuildResult, error) {
	path := m.path() + ".building"
	building, err := openBulk(ctx, path, m.definition)
	if err != nil {
		return RebuildResult{}, err
	}
	defer removeFiles(path)
	defer building.close()
	started := time.Now()
	r := RebuildResult{}
	if r.Events, err = m.build(ctx, building, progress); err != nil {
		return RebuildResult{}, err
	}
	r.Duration = time.Since(started)
	if r.Before, r.After, err = m.compare(ctx, building.file); err != nil {
		return RebuildResult{}, err
	}
	return r, m.exchange(func() (*file, error) {
		if err := m.align(ctx, building.file); err != nil {
			return nil, err
		}
		return m.swap(ctx, building.file)
	})
}

// swap closes both files, puts the new one in the place of the current one and opens it.
func (m *Model) swap(ctx context.Context, building *file) (*file, error) {
	if err := errors.Join(building.close(), syncFile(building.path), m.current.close(),
		removeFiles(m.path())); err != nil {
		return nil, err
	}
	if err := os.Rename(building.path, m.path()); err != nil {
		return nil, err
	}
	return openFile(ctx, m.path(), m.definition)
}

// build applies the whole log to the file, creates its indexes and returns the number of events.
func (m *Model) build(ctx context.Context, f *bulkFile, progress func(done, total uint64)) (uint64, error) {
	total, err := m.log.Last(ctx)
	if err != nil {
		return 0, err
	}
	var n uint64
	err = m.follow(ctx, 0, true, func(batch []decodedEvent, caughtUp bool) error {
		if err := f.commit(batch); err != nil {
			return err
		}
		n += uint64(len(batch))
		progress(f.seq, max(total, f.seq))
		if caughtUp {
			return events.ErrStop
		}
		return nil
	})
	if err != nil {
		return n, err
	}
	return n, f.finish()
}

// compare returns the digests of the current file and of the new one at the same sequence. The current file continues
// to advance. A damaged file has the digest "".
func (m *Model) compare(ctx context.Context, building *file) (before, after string, err error) {
	m.write.Lock()
	if err = m.align(ctx, building); err != nil {
		m.write.Unlock()
		return "", "", err
	}
	m.use.RLock()
	defer m.use.RUnlock()
	current, err := m.current.snapshot(ctx)
	m.write.Unlock()
	if err == nil {
		before, err = digest(ctx, current)
		current.Rollback()
	}
	if err != nil && !errors.Is(unusable(err), errUnusable) {
		return "", "", err
	}
	fresh, err := building.snapshot(ctx)
	if err != nil {
		return "", "", err
	}
	defer fresh.Rollback()
	after, err = digest(ctx, fresh)
	return before, after, err
}

// align brings the file and the current file to the same sequence. A damaged current file stays behind. The caller
// holds m.write.
func (m *Model) align(ctx context.Context, f *file) error {
	target := max(f.seq, m.current.seq)
	if err := m.catchUp(ctx, m.current, target); err != nil && !errors.Is(err, errUnusable) {
		return err
	}
	return m.catchUp(ctx, f, target)
}

// catchUp applies the log to a file up to target, which the log must have.
func (m *Model) catchUp(ctx context.Context, f *file, target uint64) error {
	if f.seq >= target {
		return nil
	}
	return m.follow(ctx, f.seq, false, func(batch []decodedEvent, _ bool) error {
		for len(batch) > 0 && batch[len(batch)-1].Seq > target {
			batch = batch[:len(batch)-1]
		}
		if err := f.commit(batch); err != nil {
			return err
		}
		if f == m.current {
			m.move(f.seq, m.CaughtUp(), true, f.tx.changed)
		}
		if f.seq >= target {
			return events.ErrStop
		}
		return nil
	})
}
