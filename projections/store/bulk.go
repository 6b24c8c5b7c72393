package store

import (
	"context"
	"fmt"
	"os"
)

// bulkFile is a new file that is computed from the first event of the log. Nobody else reads it, and an interrupted one is
// computed again. So it needs neither the indexes of queries nor writes to disk in a certain order before it is complete.
type bulkFile struct {
	*file
	indexes []string // the SQL that creates them
}

// bulkPragmas are settings for a file that is lost with the process. The journal in memory is for the savepoints of commit.
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

// dropIndexes drops the indexes that finish creates. A unique index remains, because it decides which events cannot be applied.
func (b *bulkFile) dropIndexes(ctx context.Context) error {
	found, err := b.tx.conn.QueryContext(ctx, "SELECT name, sql FROM sqlite_schema WHERE type='index' AND sql NOT LIKE 'CREATE UNIQUE%' ORDER BY rowid")
	if err != nil {
		return err
	}
	defer found.Close()
	var drops []string
	for found.Next() {
		var name, create string
		if err := found.Scan(&name, &create); err != nil {
			return err
		}
		drops, b.indexes = append(drops, "DROP INDEX "+name), append(b.indexes, create)
	}
	if err := found.Err(); err != nil {
		return err
	}
	for _, drop := range drops {
		if err := b.tx.exec(drop); err != nil {
			return fmt.Errorf("%s: %w", drop, err)
		}
	}
	return nil
}

// finish creates the indexes and writes the file to disk. Sorting all rows once takes less time than changing an index with each
// row.
func (b *bulkFile) finish() error {
	for _, create := range b.indexes {
		if err := b.tx.exec(create); err != nil {
			return fmt.Errorf("%s: %w", create, err)
		}
	}
	return syncFile(b.path)
}

// syncFile waits until a file is on disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
