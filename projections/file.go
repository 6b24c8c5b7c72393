package projections

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pocketbase/dbx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// file is an open read-model file: one connection that writes, a pool that can only read.
type file struct {
	path    string
	writer  *sql.DB
	readers *dbx.DB
	views   chan struct{} // holds one for each view there is
	viewers chan *viewer  // those that are free
	tx      *Tx
	seq     uint64 // checkpoint
}

// Settings of every connection: the busy timeout first, so that it holds for the others. NORMAL loses the newest commits
// in a power cut, and the log has them.
const (
	pragmas       = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=cache_size(-32000)"
	readerPragmas = "?_pragma=busy_timeout(10000)&_pragma=query_only(1)&_pragma=cache_size(-8000)"
)

// maxReaders is how many queries run at once besides those of views; more wait for one of them to end.
const maxReaders = 8

// errUnusable says a file is no read model of ours, or a damaged one: it can be set aside and made again.
var errUnusable = errors.New("not a usable read model")

// openFile opens the file at path and makes its tables when it is new.
func openFile(ctx context.Context, path string) (*file, error) {
	uri := "file:" + (&url.URL{Path: path}).EscapedPath()
	writer, err := sql.Open("sqlite", uri+pragmas)
	if err != nil {
		return nil, err
	}
	writer.SetMaxOpenConns(1)
	f := newFile(path, writer)
	if err := f.prepare(ctx); err != nil {
		writer.Close()
		return nil, unusable(err)
	}
	readers, err := sql.Open("sqlite", uri+readerPragmas)
	if err != nil {
		writer.Close()
		return nil, err
	}
	readers.SetMaxOpenConns(maxReaders + maxViews)
	readers.SetMaxIdleConns(maxReaders) // opening one takes longer than most queries
	f.readers = dbx.NewFromDB(readers, "sqlite")
	return f, nil
}

func newFile(path string, writer *sql.DB) *file {
	return &file{path: path, writer: writer, views: make(chan struct{}, maxViews), viewers: make(chan *viewer, maxViews)}
}

func (f *file) prepare(ctx context.Context) error {
	conn, err := f.writer.Conn(ctx)
	if err != nil {
		return err
	}
	var tables, mark int64
	if err := conn.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM sqlite_schema), user_version FROM pragma_user_version").Scan(&tables, &mark); err != nil {
		return err
	}
	text := tablesSQL()
	if tables == 0 && mark == 0 {
		script := fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA user_version=%d; COMMIT", text, schemaMark(text))
		if _, err := conn.ExecContext(ctx, script); err != nil {
			return err
		}
	} else if mark != schemaMark(text) {
		return fmt.Errorf("%w: it has other tables", errUnusable)
	}
	if err := conn.QueryRowContext(ctx, "SELECT seq FROM checkpoint").Scan(&f.seq); err != nil {
		return err
	}
	f.tx, err = newTx(conn)
	return err
}

// tablesSQL is the SQL of all tables.
func tablesSQL() string {
	text := schema("worker")
	for _, p := range projections {
		text += p.Schema()
	}
	return text
}

// schemaMark is what a file's user_version says when it has exactly these tables.
func schemaMark(text string) int64 { return int64(crc32.ChecksumIEEE([]byte(text)) & 0x7fffffff) }

// unusable marks the errors of SQLite that say the file is damaged or is no database.
func unusable(err error) error {
	var s *sqlite.Error
	if errors.As(err, &s) {
		switch s.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("%w: %w", errUnusable, err)
		}
	}
	return err
}

// isFull says whether the disk had no room.
func isFull(err error) bool {
	var s *sqlite.Error
	return errors.As(err, &s) && s.Code()&0xff == sqlite3.SQLITE_FULL
}

// commit applies events that follow the checkpoint.
func (f *file) commit(batch []decoded) error {
	for len(batch) > 0 && batch[0].Seq <= f.seq { // delivered again
		batch = batch[1:]
	}
	if len(batch) == 0 {
		return nil
	}
	last := f.seq
	for _, d := range batch {
		if d.Seq <= last {
			return fmt.Errorf("event #%d came after #%d", d.Seq, last)
		}
		last = d.Seq
	}
	if err := f.tx.commit(batch); err != nil {
		return unusable(err)
	}
	f.seq = last
	return nil
}

func (f *file) close() error {
	var err error
	for len(f.viewers) > 0 {
		err = errors.Join(err, (<-f.viewers).close())
	}
	return errors.Join(err, f.readers.Close(), f.tx.close(), f.writer.Close())
}

// sidecars are the files SQLite keeps beside a database in WAL mode.
var sidecars = []string{"", "-wal", "-shm"}

// removeFiles removes a database with its sidecars.
func removeFiles(path string) error {
	for _, s := range sidecars {
		if err := os.Remove(path + s); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// moveAside renames an unusable database with its sidecars to <path>.corrupt-<n>, the first n that is free.
func moveAside(path string) (string, error) {
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.corrupt-%d", path, n)
		if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
			if err != nil {
				return "", err
			}
			continue
		}
		for _, s := range sidecars {
			if err := os.Rename(path+s, to+s); err != nil && !errors.Is(err, os.ErrNotExist) {
				return "", err
			}
		}
		return to, nil
	}
}

// removeOtherVersions removes the files of other versions from dir.
func removeOtherVersions(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "readmodel.v*.db*"))
	if err != nil {
		return err
	}
	for _, p := range paths {
		if !strings.HasPrefix(filepath.Base(p), fileName()) {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func fileName() string { return fmt.Sprintf("readmodel.v%d.db", Version) }
