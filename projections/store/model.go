// Package store keeps read models in one SQLite file that follows the event log.
//
// The caller's Definition holds the tables, the decoder of events and the function that applies an event. This package
// does the rest: Open and Run follow the log, Rebuild computes the file again beside the one that serves queries, Feed
// reports changed rows, View reads the rows of one moment, and Memory computes a few events in memory.
//
// The file is disposable. It is never migrated, because the log can rebuild it. A file that is damaged, that has other
// tables, or that is ahead of the log is moved aside. A new version begins with an empty file, and removes the files of
// other versions once it has caught up.
//
// Promises:
//   - One goroutine writes. The rows of a batch and the checkpoint, which is the sequence of the last event applied,
//     commit together.
//   - The same log gives the same bytes for every batch size, redelivery and restart. Digest proves it.
//   - After Wait(seq), queries see the changes of the event at seq.
//   - An event that cannot be applied becomes a row of dead_letters with its error, and leaves no other trace. A full
//     disk or an unreachable log is never the fault of an event: the writer retries.
//   - The column updated moves forward with each change of a row, by at least a millisecond. A removed row stays in its
//     table with removed=1.
//
// The package must not know what the events and rows mean, and it never appends to the log.
package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
)

// Definition defines the read models of a file.
type Definition struct {
	Version string // part of the file name
	Schema  string // SQL that creates the tables in an empty file

	// Decode returns the body of an event. An error sets the event aside. Decode runs concurrently with Apply.
	Decode func(e events.Event) (body any, err error)

	// Open opens the tables with OpenTable and returns the function that changes them. It is called once for each file.
	Open func(tx *Tx) Apply
}

// Apply changes the tables according to an event. An error sets the event aside. Apply must be deterministic: no
// clock, no randomness, no I/O besides the tables.
type Apply func(e events.Event, body any) error

// Model is an open file, the loop that writes it (Run) and its queries. It is safe for concurrent use.
type Model struct {
	definition Definition
	log        *log.Log
	dir        string

	write sync.Mutex // held while a batch is committed, and while the file is replaced
	// the files of other versions were removed, once: a newer version may prepare its own. Guarded by write
	cleaned    bool
	use        sync.RWMutex // held for reading by queries, and for writing while the file is replaced
	current    *file
	rebuilding sync.Mutex

	mu        sync.Mutex
	seq       uint64
	moved     chan struct{} // closed when seq or caughtUp changes
	woken     uint64        // number of committed batches for which Tx.Wake was called
	published uint64        // feeds have the changes up to this sequence
	feeds     map[*Feed]bool
	caughtUp  bool
	loaded    uint64 // sequence that load has reached
	setAside  string
	trouble   string

	firstCheck, nextCheck time.Duration // pauses before a check for damage
}

// Open opens the file in dir, or creates an empty one. It moves an unusable file aside, and ReplacedFile then returns
// the reason.
func Open(ctx context.Context, dir string, log *log.Log, d Definition) (*Model, error) {
	m := &Model{definition: d, log: log, dir: dir, moved: make(chan struct{}), feeds: map[*Feed]bool{},
		firstCheck: checkDelay, nextCheck: checkPause}
	last, err := log.Last(ctx)
	if err != nil {
		return nil, fmt.Errorf("open read models: %w", err)
	}
	f, err := openFile(ctx, m.path(), d)
	if err == nil && f.seq > last {
		err = errors.Join(fmt.Errorf("%w: it has applied event #%d of another log, this one ends at #%d", errUnusable, f.seq,
			last), f.close())
	}
	if errors.Is(err, errUnusable) {
		f, err = m.startOver(ctx, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open read models %s: %w", m.path(), err)
	}
	m.current, m.seq, m.published = f, f.seq, f.seq
	return m, nil
}

func (m *Model) path() string { return filepath.Join(m.dir, fileName(m.definition.Version)) }

// startOver moves the file aside and opens an empty one.
func (m *Model) startOver(ctx context.Context, cause error) (*file, error) {
	to, err := moveAside(m.path())
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	m.mu.Lock()
	m.setAside = fmt.Sprintf("%s was moved to %s: %v", m.path(), to, cause)
	m.mu.Unlock()
	return openFile(ctx, m.path(), m.definition)
}

// fullPause is the time between two attempts while the disk is full or the log is unreachable.
const fullPause = time.Second

// Run applies the events after the checkpoint and continues with new ones until ctx ends, or the log or the disk
// fails. It commits each batch as it arrives; an empty file holds nothing until all of a long log is applied. It moves
// a damaged file aside and starts over. It looks for damage after the start and once a day. It waits for a full disk
// and for an unreachable log; queries continue meanwhile with the rows that there are.
func (m *Model) Run(ctx context.Context) error {
	var err error
	for err == nil {
		err = m.work(ctx)
		switch {
		case errors.Is(err, errUnusable):
			err = m.exchange(func() (*file, error) { return m.startOver(ctx, errors.Join(err, m.current.close())) })
		case codeOf(err) == sqlite3.SQLITE_FULL:
			m.setTrouble("no disk space: " + err.Error())
			err = sleep.For(ctx, fullPause)
		case log.IsUnavailable(err) && ctx.Err() == nil: // the log opens again after a full disk
			m.setTrouble("the log does not answer: " + err.Error())
			err = sleep.For(ctx, fullPause)
		}
	}
	return fmt.Errorf("run read models: %w", err)
}

// work follows the log until that fails, or until check finds damage.
func (m *Model) work(ctx context.Context) error {
	if err := m.load(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for pause := m.firstCheck; sleep.For(ctx, pause) == nil; pause = m.nextCheck {
			if err := m.check(ctx); errors.Is(err, errUnusable) {
				cancel(err)
			}
		}
	}()
	return m.follow(ctx, m.Seq(), false, m.take)
}

const (
	checkDelay = time.Second // between the start and the first check, which would otherwise slow down the start
	checkPause = 24 * time.Hour
)

// check reads the whole file to find damage. It takes about 4 ms per MB (measured), so it runs beside the loop.
func (m *Model) check(ctx context.Context) error {
	m.use.RLock()
	defer m.use.RUnlock()
	return unusable(m.current.check(ctx))
}

// Apply applies events that the caller has read, in ascending order. It skips events up to the checkpoint. Run must
// not be running.
func (m *Model) Apply(batch []events.Event) error {
	return m.take(decodeAll(m.definition.Decode, batch), true)
}

// take commits a batch, and notifies Wait and the feeds.
func (m *Model) take(batch []decodedEvent, caughtUp bool) error {
	m.write.Lock()
	defer m.write.Unlock()
	if err := m.current.commit(batch); err != nil {
		return err
	}
	if caughtUp && !m.cleaned {
		if err := removeOtherVersions(m.path()); err != nil {
			return err
		}
		m.cleaned = true
	}
	m.setTrouble("")
	m.move(m.current.seq, caughtUp, m.current.tx.wake, m.current.tx.changed)
	return nil
}

// exchange replaces the current file while no query is running.
func (m *Model) exchange(open func() (*file, error)) error {
	m.write.Lock()
	defer m.write.Unlock()
	m.use.Lock()
	defer m.use.Unlock()
	f, err := open()
	if err != nil {
		return err
	}
	changed, err := f.changedSince(m.published) // the new file may be ahead of the damaged one
	if err != nil {
		return errors.Join(err, f.close())
	}
	m.current = f
	m.move(f.seq, m.caughtUp, true, changed)
	return nil
}

// move records that the current file has reached seq. It notifies Wait and the feeds.
func (m *Model) move(seq uint64, caughtUp, wake bool, changed []changedRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if wake {
		m.woken++
	}
	m.seq, m.caughtUp = seq, caughtUp
	m.publish(seq, changed)
	close(m.moved)
	m.moved = make(chan struct{})
}

// Wait blocks until queries see the changes of the event at seq. Wait(ctx, m.Seq()+1) waits for the next event.
func (m *Model) Wait(ctx context.Context, seq uint64) error {
	if err := m.await(ctx, func() bool { return m.seq >= seq }); err != nil {
		return fmt.Errorf("wait for event #%d in the read models: %w", seq, err)
	}
	return nil
}

// CatchUp blocks until queries see the changes of every event that the log holds now.
func (m *Model) CatchUp(ctx context.Context) error {
	last, err := m.log.Last(ctx)
	if err != nil {
		return err
	}
	return m.Wait(ctx, last)
}

// await blocks until a condition holds, which it evaluates while it holds m.mu.
func (m *Model) await(ctx context.Context, holds func() bool) error {
	for {
		m.mu.Lock()
		done, moved := holds(), m.moved
		m.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Woken returns how many committed batches have called Tx.Wake.
func (m *Model) Woken() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.woken
}

// Awake blocks until more batches than n have called Tx.Wake.
func (m *Model) Awake(ctx context.Context, n uint64) error {
	if err := m.await(ctx, func() bool { return m.woken > n }); err != nil {
		return fmt.Errorf("wait for an event that matters: %w", err)
	}
	return nil
}

// Seq returns the sequence of the last event applied.
func (m *Model) Seq() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seq
}

// CaughtUp reports whether the last batch reached the end of the log. It is false until Run has applied a batch.
func (m *Model) CaughtUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.caughtUp
}

// ReplacedFile returns which file was unusable, the reason and its new path. It returns "" if there was no such file.
func (m *Model) ReplacedFile() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.setAside
}

// Trouble returns the reason why Run cannot continue at present, "" if it can.
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

// Close closes the file. Run must have returned.
func (m *Model) Close() error {
	m.write.Lock()
	defer m.write.Unlock()
	m.use.Lock()
	defer m.use.Unlock()
	return m.current.close()
}
