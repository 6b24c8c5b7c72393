package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
)

// Memory holds read models in memory. They hold the events that Apply got. One goroutine uses it at a time.
type Memory struct {
	file   *file
	viewer *viewer // on the connection that writes
	decode func(events.Event) (any, error)
}

// serializer is a connection of the driver.
type serializer interface {
	Serialize() ([]byte, error)
	Deserialize([]byte) error
}

// OpenMemory opens the read models that Save returned, or empty ones for nil.
func OpenMemory(ctx context.Context, d Definition, saved []byte) (*Memory, error) {
	db, err := sql.Open("sqlite", "file::memory:")
	if err == nil {
		db.SetMaxOpenConns(1) // a second connection would be a second database
		var m *Memory
		if m, err = openMemory(ctx, db, d, saved); err == nil {
			return m, nil
		}
		db.Close()
	}
	return nil, fmt.Errorf("open read models in memory: %w", err)
}

func openMemory(ctx context.Context, db *sql.DB, d Definition, saved []byte) (*Memory, error) {
	if saved != nil {
		if err := onDriver(ctx, db, func(s serializer) error { return s.Deserialize(saved) }); err != nil {
			return nil, err
		}
	}
	f := newFile("", db)
	f.readers = dbx.NewFromDB(db, "sqlite")
	if err := f.prepare(ctx, d); err != nil {
		return nil, err
	}
	if err := f.dropTriggers(ctx); err != nil {
		return nil, errors.Join(err, f.tx.close())
	}
	return &Memory{f, &viewer{connection: f.tx.connection}, d.Decode}, nil
}

// onDriver calls fn with the driver's connection of a pool that has one.
func onDriver(ctx context.Context, db *sql.DB, fn func(serializer) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driver any) error { return fn(driver.(serializer)) })
}

// dropTriggers drops the triggers that keep indexes of texts up to date: these texts are not searched.
func (f *file) dropTriggers(ctx context.Context) error {
	drops, err := texts(ctx, f.tx.conn, "SELECT 'DROP TRIGGER ' || name FROM sqlite_schema WHERE type='trigger'")
	if err != nil {
		return err
	}
	return f.tx.execute(drops)
}

// Apply applies events in order. It skips those that the read models hold already.
func (m *Memory) Apply(all []events.Event) error { return m.file.commit(decodeAll(m.decode, all)) }

// View calls fn with the read models. It returns an error of fn unchanged.
func (m *Memory) View(ctx context.Context, fn func(db dbx.Builder) error) error {
	_, err := m.viewer.begin(ctx)
	if err == nil {
		err = fn(dbx.NewSqliteBuilder(m.file.readers.WithContext(ctx), m.viewer))
	}
	return cmp.Or(err, m.viewer.end())
}

// Save returns the read models for OpenMemory of the same definition.
func (m *Memory) Save() (saved []byte, err error) {
	err = m.file.tx.conn.Raw(func(driver any) (err error) {
		saved, err = driver.(serializer).Serialize()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("save read models: %w", err)
	}
	return saved, nil
}

// Size returns the size of the read models in bytes.
func (m *Memory) Size(ctx context.Context) (bytes int, err error) {
	err = m.file.tx.conn.QueryRowContext(ctx, "SELECT page_count*page_size FROM pragma_page_count, pragma_page_size").Scan(&bytes)
	return bytes, err
}

// Close frees the memory. A connection that stays open would keep the whole database.
func (m *Memory) Close() error {
	return errors.Join(m.file.tx.close(), m.file.writer.Close())
}
