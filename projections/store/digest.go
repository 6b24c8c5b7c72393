package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"hash"
)

// Digest returns the SHA-256, in hex, of every row of every table in key order, the checkpoint included. The same log
// gives the same digest.
func (m *Model) Digest(ctx context.Context) (string, error) {
	m.use.RLock()
	defer m.use.RUnlock()
	tx, err := m.current.snapshot(ctx)
	if err != nil {
		return "", fmt.Errorf("digest read models: %w", err)
	}
	defer tx.Rollback()
	return digest(ctx, tx)
}

// digest leaves out indexes of texts: how FTS5 stores one depends on the batches, what it finds does not.
func digest(ctx context.Context, tx *sql.Tx) (string, error) {
	names, err := texts(ctx, tx, "SELECT name FROM pragma_table_list WHERE schema='main' AND type='table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
	if err != nil {
		return "", fmt.Errorf("digest read models: %w", err)
	}
	h := sha256.New()
	for _, name := range names {
		if err := digestTable(ctx, tx, name, h); err != nil {
			return "", fmt.Errorf("digest read models: table %s: %w", name, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// texts returns the only column of a query.
func texts(ctx context.Context, db interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, query string) (list []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}

// digestTable hashes a table: its name and columns, then each value with its length. The first column is the key.
func digestTable(ctx context.Context, tx *sql.Tx, name string, h hash.Hash) error {
	rows, err := tx.QueryContext(ctx, "SELECT * FROM "+name+" ORDER BY 1")
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%s %q\n", name, columns)
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for _, v := range values {
			fmt.Fprintf(h, "%d:", len(v))
			h.Write(v)
		}
	}
	return rows.Err()
}
