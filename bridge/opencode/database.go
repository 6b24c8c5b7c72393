package opencode

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"modernc.org/sqlite" // OpenCode's database
	sqlite3 "modernc.org/sqlite/lib"
)

// DamagedDir is the directory of damaged databases, in Dir. OpenCode does not read it.
const DamagedDir = "damaged"

// moveDamagedDatabase moves OpenCode's database to a new directory in DamagedDir if the database is damaged, and
// reports whether it has done so. OpenCode ends at a damaged database, and creates a missing one. The log has the
// events of all chats, so only OpenCode's memory of them is lost. OpenCode must not run.
func (s *Supervisor) moveDamagedDatabase(ctx context.Context) (moved bool, err error) {
	path := s.path("data", "opencode", "opencode.db")
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() { // OpenCode can create links and pipes
		return false, nil
	}
	damage, err := databaseDamage(ctx, path)
	if damage == "" || err != nil {
		return false, err
	}
	aside := s.path(DamagedDir, time.Now().UTC().Format("2006-01-02T15-04-05.000Z"))
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return false, err
	}
	// The database is the last: a new one must not find the write-ahead log of this one.
	for _, suffix := range []string{"-wal", "-shm", ""} {
		err := os.Rename(path+suffix, aside+"/opencode.db"+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	s.Logger.Error("OpenCode's database is damaged and was moved aside. OpenCode starts with an empty one: "+
		"the log keeps all chats, but the model does not know their earlier messages", "damage", damage, "moved_to", aside)
	return true, nil
}

// databaseDamage returns how an SQLite database is damaged, "" if it is not.
func databaseDamage(ctx context.Context, path string) (damage string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("check OpenCode's database %s: %w", path, err)
		}
	}()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(10000)"}).String())
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&damage)
	var failure *sqlite.Error
	if errors.As(err, &failure) {
		switch failure.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return failure.Error(), nil
		}
	}
	if err != nil || damage == "ok" {
		return "", err
	}
	return damage, nil
}
