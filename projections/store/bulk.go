package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pocketcoder/events/log"
)

// bulkFile is a new file that is computed from the first event of the log. No other process reads it, and an
// interrupted one is computed again. So it needs neither the indexes of queries nor writes to disk in a certain order
// before it is complete.
type bulkFile struct {
	*file
	indexes []string // the SQL that creates them, and their triggers
}

// bulkPragmas are settings for a file that is lost with the process. The journal in memory is for the savepoints of
// commit.
const bulkPragmas = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(MEMORY)&_pragma=synchronous(OFF)&_pragma=cache_size(-64000)"

// openBulk creates an empty file at path. It removes a file that an interrupted rebuild has left there.
func openBulk(ctx context.Context, path string, d Definition) (*bulkFile, error) {
	if err := removeFiles(path); err != nil {
		return nil, err
	}
	f, err := openWith(ctx, path, bulkPragmas, d)
	if err != nil {
		return nil, err
	}
	b := &bulkFile{file: f}
	if err := b.dropIndexes(ctx); err != nil {
		f.close()
		return nil, err
	}
	return b, nil
}

// dropIndexes drops the indexes that finish creates, and the triggers that keep indexes of texts up to date. A unique
// index remains, because it decides which events cannot be applied.
func (b *bulkFile) dropIndexes(ctx context.Context) error {
	var err error
	if b.indexes, err = b.drop(ctx, "'index', 'trigger'"); err != nil {
		return err
	}
	searched, err := texts(ctx, b.tx.conn,
		"SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE % USING fts5%' ORDER BY rowid")
	for _, name := range searched {
		command := "INSERT INTO " + name + "(" + name + ", rank) VALUES"
		b.indexes = append(b.indexes, fmt.Sprintf("%s('hashsize', %d)", command, bulkHash), command+"('rebuild', NULL)",
			fmt.Sprintf("%s('hashsize', %d)", command, defaultHash))
	}
	return err
}

// FTS5 writes and merges what it has indexed whenever it has so many bytes of it. Few large writes take half the time
// of many small ones.
const (
	defaultHash = 1 << 20
	bulkHash    = 32 << 20
)

// drop drops what has one of the types in sqlite_schema, without unique indexes. It returns the SQL that creates it.
func (f *file) drop(ctx context.Context, types string) (create []string, err error) {
	dropped := " FROM sqlite_schema WHERE type IN (" + types + ") AND sql NOT LIKE 'CREATE UNIQUE%' ORDER BY rowid"
	drops, err := texts(ctx, f.tx.conn, "SELECT 'DROP ' || type || ' ' || name"+dropped)
	if err != nil {
		return nil, err
	}
	if create, err = texts(ctx, f.tx.conn, "SELECT sql"+dropped); err != nil {
		return nil, err
	}
	return create, f.tx.execute(drops)
}

// finish creates the indexes and writes the file to disk. Sorting all rows once takes less time than changing an index
// with each row.
func (b *bulkFile) finish() error {
	return errors.Join(b.tx.execute(b.indexes), syncFile(b.path))
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// load computes an empty file in bulk if the log is long. Queries see nothing until the whole log of now is applied.
func (m *Model) load(ctx context.Context) error {
	last, err := m.log.Last(ctx)
	if err != nil || m.Seq() > 0 || last < bulkEvents {
		return err
	}
	m.rebuilding.Lock()
	defer m.rebuilding.Unlock()
	building, err := openBulk(ctx, m.path()+".building", m.definition)
	if err != nil {
		return err
	}
	defer removeFiles(building.path)
	defer building.close()
	if _, err := m.build(ctx, building, func(done, _ uint64) { m.setLoaded(done) }); err != nil {
		return err
	}
	return m.exchange(func() (*file, error) { return m.swap(ctx, building.file) })
}

// Loaded returns the sequence that Run has reached. It is ahead of Seq while an empty file is computed from a long log.
func (m *Model) Loaded() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.loaded, m.seq)
}

func (m *Model) setLoaded(seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = seq
}

// ErrPrepared means that the file of a version exists already.
var ErrPrepared = errors.New("this version has its read models already")

// Prepare computes the file of a version in dir from the whole log, while another version serves queries from its own
// file. It returns the number of events, or ErrPrepared. Open of that version continues from there.
func Prepare(ctx context.Context, dir string, log *log.Log, d Definition,
	progress func(done, total uint64)) (uint64, error) {
	m := &Model{definition: d, log: log, dir: dir}
	n, err := m.prepare(ctx, progress)
	if err != nil {
		return 0, fmt.Errorf("prepare read models %s: %w", m.path(), err)
	}
	return n, nil
}

// preparing is the pattern of the directories in which Prepare works.
const preparing = "preparing-*"

// removePreparing removes the directory that a killed Prepare has left.
func removePreparing(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, preparing))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

func (m *Model) prepare(ctx context.Context, progress func(done, total uint64)) (uint64, error) {
	if _, err := os.Lstat(m.path()); !errors.Is(err, os.ErrNotExist) {
		return 0, errors.Join(err, ErrPrepared)
	}
	if err := removePreparing(m.dir); err != nil {
		return 0, err
	}
	private, err := os.MkdirTemp(m.dir, preparing) // no other process writes there
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(private)
	building, err := openBulk(ctx, filepath.Join(private, "db"), m.definition)
	if err != nil {
		return 0, err
	}
	n, err := m.build(ctx, building, progress)
	if err := errors.Join(err, building.close()); err != nil {
		return 0, err
	}
	if err := os.Link(building.path, m.path()); errors.Is(err, os.ErrExist) { // its "up" was started meanwhile
		return 0, ErrPrepared
	} else if err != nil {
		return 0, err
	}
	return n, nil
}
