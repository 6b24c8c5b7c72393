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
	file    *file
	viewer  *viewer // on the connection that writes
	decode  func(events.Event) (any, error)
	indexes []string // the SQL of those that the first View or Save creates: see bulkFile.finish
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
	m := &Memory{file: f, viewer: &viewer{connection: f.tx.connection}, decode: d.Decode}
	if err := m.dropIndexes(ctx, saved == nil); err != nil {
		return nil, errors.Join(err, f.tx.close())
	}
	return m, nil
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

// dropIndexes drops the triggers that keep indexes of texts up to date, because these texts are not searched. In empty
// read models it also drops the other indexes until the first View or Save.
func (m *Memory) dropIndexes(ctx context.Context, areEmpty bool) error {
	_, err := m.file.drop(ctx, "'trigger'")
	if err == nil && areEmpty {
		m.indexes, err = m.file.drop(ctx, "'index'")
	}
	return err
}

func (m *Memory) createIndexes() error {
	err := m.file.tx.execute(m.indexes)
	if err == nil {
		m.indexes = nil
	}
	return err
}

// Apply applies events in order. It skips those that the read models hold already.
func (m *Memory) Apply(all []events.Event) error { return m.file.commit(decodeAll(m.decode, all)) }

// View calls fn with the read models. It returns an error of fn unchanged.
func (m *Memory) View(ctx context.Context, fn func(db dbx.Builder) error) error {
	err := m.createIndexes()
	if err == nil {
		_, err = m.viewer.begin(ctx)
	}
	if err == nil {
		err = fn(dbx.NewSqliteBuilder(m.file.readers.WithContext(ctx), m.viewer))
	}
	return cmp.Or(err, m.viewer.end())
}

// Save returns the read models for OpenMemory of the same definition.
func (m *Memory) Save() (saved []byte, err error) {
	if err = m.createIndexes(); err == nil {
		err = m.file.tx.conn.Raw(func(driver any) (err error) {
			saved, err = driver.(serializer).Serialize()
			return err
		})
	}
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
