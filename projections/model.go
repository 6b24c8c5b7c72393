package projections

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"pocketcoder/events/log"
)

// Model is the read models: the worker that keeps them (Run) and the queries. It is safe for concurrent use.
type Model struct {
	log *log.Log
	dir string

	write      sync.Mutex   // held while a batch is committed, or the file is exchanged
	use        sync.RWMutex // held for reading while the file is used, for writing while it is exchanged
	current    *file
	rebuilding sync.Mutex

	mu       sync.Mutex
	seq      uint64
	moved    chan struct{} // closed when seq or caughtUp changes
	told     uint64        // followers know of the events up to here
	feeds    map[*Feed]bool
	caughtUp bool
	setAside string
	trouble  string
}

// Open opens the read-model file in dir, or makes an empty one. A file that is damaged, of other tables or ahead of the
// log is moved aside, and SetAside says so: nothing is lost, Run replays the log.
func Open(ctx context.Context, dir string, log *log.Log) (*Model, error) {
	m := &Model{log: log, dir: dir, moved: make(chan struct{}), feeds: map[*Feed]bool{}}
	last, err := log.Last(ctx)
	if err != nil {
		return nil, fmt.Errorf("open read models: %w", err)
	}
	f, err := openFile(ctx, m.path())
	if err == nil && f.seq > last {
		err = errors.Join(fmt.Errorf("%w: it has applied event #%d of another log, this one ends at #%d", errUnusable, f.seq, last), f.close())
	}
	if errors.Is(err, errUnusable) {
		f, err = m.startOver(ctx, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open read models %s: %w", m.path(), err)
	}
	m.current, m.seq, m.told = f, f.seq, f.seq
	return m, nil
}

func (m *Model) path() string { return filepath.Join(m.dir, fileName()) }

// startOver moves the file aside and gives an empty one.
func (m *Model) startOver(ctx context.Context, cause error) (*file, error) {
	to, err := moveAside(m.path())
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	m.mu.Lock()
	m.setAside = fmt.Sprintf("%s was moved to %s: %v", m.path(), to, cause)
	m.mu.Unlock()
	return openFile(ctx, m.path())
}

// SetAside says which file could not be used, why, and where it is now; empty when there was none.
func (m *Model) SetAside() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.setAside
}

// Trouble says why the worker is not getting on just now; empty when it is.
func (m *Model) Trouble() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trouble
}

func (m *Model) setTrouble(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = text
}

// fullPause is the pause before a full disk is tried again.
const fullPause = time.Second

// Run is the worker. It applies every event of the log from the checkpoint on, commits what has arrived without waiting
// for more, and goes on until ctx ends, or the log or the disk fails. A file found damaged is moved aside and made again. A
// full disk and a log that does not answer are waited for: the log has what is missing, and queries go on with what there is.
func (m *Model) Run(ctx context.Context) error {
	var err error
	for err == nil {
		err = m.work(ctx)
		switch {
		case errors.Is(err, errUnusable):
			err = m.exchange(func() (*file, error) { return m.startOver(ctx, errors.Join(err, m.current.close())) })
		case isFull(err):
			m.setTrouble("no disk space: " + err.Error())
			err = pause(ctx)
		case log.IsUnavailable(err) && ctx.Err() == nil: // after a full disk it opens again
			m.setTrouble("the log does not answer: " + err.Error())
			err = pause(ctx)
		}
	}
	return fmt.Errorf("run read models: %w", err)
}

// pause waits before the next try.
func pause(ctx context.Context) error {
	select {
	case <-time.After(fullPause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work follows the log until that fails, or the file is found damaged.
func (m *Model) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := m.check(ctx); errors.Is(err, errUnusable) {
			cancel(err)
		}
	}()
	return follow(ctx, m.log, m.Seq(), m.take)
}

// check reads the whole file for damage. That takes some 4 ms for each MB (measured), so nobody waits for it.
func (m *Model) check(ctx context.Context) error {
	found, _, err := first[struct{ QuickCheck string }](ctx, m, "damage", "PRAGMA quick_check(1)", nil)
	if err == nil && found.QuickCheck != "ok" {
		err = fmt.Errorf("%w: %s", errUnusable, found.QuickCheck)
	}
	return unusable(err)
}

// take commits a batch and tells those who wait.
func (m *Model) take(batch []decoded, caughtUp bool) error {
	m.write.Lock()
	defer m.write.Unlock()
	if err := m.current.commit(batch); err != nil {
		return err
	}
	if caughtUp && !m.CaughtUp() {
		if err := removeOtherVersions(m.dir); err != nil {
			return err
		}
	}
	m.setTrouble("")
	m.move(m.current.seq, caughtUp, m.current.tx.changed)
	return nil
}

// move tells those who wait, and followers what changed, that the current file has come to seq.
func (m *Model) move(seq uint64, caughtUp bool, changed []changedRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq, m.caughtUp = seq, caughtUp
	m.tell(seq, changed)
	close(m.moved)
	m.moved = make(chan struct{})
}

// exchange puts another file in place of the current one, with no query running.
func (m *Model) exchange(open func() (*file, error)) error {
	m.write.Lock()
	defer m.write.Unlock()
	m.use.Lock()
	defer m.use.Unlock()
	f, err := open()
	if err != nil {
		return err
	}
	changed, err := f.changedSince(m.told) // it may be further than the damaged one that it replaces
	if err != nil {
		return errors.Join(err, f.close())
	}
	m.current = f
	m.move(f.seq, m.caughtUp, changed)
	return nil
}

// Seq is the sequence of the last event applied.
func (m *Model) Seq() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seq
}

// CaughtUp says whether the last batch applied was all there was. It is false until Run has looked.
func (m *Model) CaughtUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.caughtUp
}

// Wait blocks until queries show what the event at seq did. Wait(ctx, m.Seq()+1) waits for news.
func (m *Model) Wait(ctx context.Context, seq uint64) error {
	for {
		m.mu.Lock()
		reached, moved := m.seq >= seq, m.moved
		m.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for event #%d in the read models: %w", seq, ctx.Err())
		}
	}
}

// Close closes the file. Run must have ended.
func (m *Model) Close() error {
	m.write.Lock()
	defer m.write.Unlock()
	m.use.Lock()
	defer m.use.Unlock()
	return m.current.close()
}
