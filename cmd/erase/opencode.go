package erase

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // OpenCode's database

	"pocketcoder/cmd/datadir"
)

// forget removes sessions, those of subagents included, from the database of each project's OpenCode. It also removes
// the log files of OpenCode.
// Otherwise the next start would read the sessions from OpenCode and store their text again.
func forget(ctx context.Context, d datadir.Dir, sessions map[string]bool) error {
	for _, p := range d.Projects() {
		home := filepath.Join(p.OpenCode, "data", "opencode")
		if err := errors.Join(os.RemoveAll(filepath.Join(home, "log")),
			os.RemoveAll(filepath.Join(p.OpenCode, "opencode.log"))); err != nil {
			return err
		}
		path := filepath.Join(home, "opencode.db")
		if !exists(path) {
			continue
		}
		if err := forgetIn(ctx, path, sessions); err != nil {
			return fmt.Errorf("remove sessions from OpenCode's database %s: %w", path, err)
		}
	}
	return nil
}

func forgetIn(ctx context.Context, path string, sessions map[string]bool) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=secure_delete(1)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	columns, err := columnsOf(ctx, db)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for id := range sessions {
		const family = "WITH RECURSIVE family(id) AS (VALUES(?) UNION SELECT session.id FROM session JOIN family ON session.parent_id=family.id) "
		for _, c := range columns {
			if _, err := tx.ExecContext(ctx, family+"DELETE FROM "+c.table+" WHERE "+c.name+" IN (SELECT id FROM family)",
				id); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, family+"DELETE FROM session WHERE id IN (SELECT id FROM family)", id); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	// so that no page and no entry of the WAL holds the text
	for _, statement := range []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// column is a column that holds session ids.
type column struct{ table, name string }

// columnsOf returns the columns that hold session ids.
func columnsOf(ctx context.Context, db *sql.DB) (list []column, err error) {
	rows, err := db.QueryContext(ctx, `SELECT t.name, c.name FROM sqlite_master t JOIN pragma_table_info(t.name) c
		WHERE t.type='table' AND c.name IN ('session_id','aggregate_id')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.table, &c.name); err != nil {
			return nil, err
		}
		c.table = `"` + c.table + `"`
		list = append(list, c)
	}
	return list, rows.Err()
}
