package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

var ErrNoEvents = errors.New("there was no such event")

// Moments calls fn with read models that hold only the events up to seq whose subject matches filter. Then it calls fn
// again after each of the next such events, more of them at most. last is the newest event that the read models hold.
// It computes them in memory from the log. It returns ErrNoEvents if there are no events up to seq, and an error of fn
// unchanged.
func Moments(ctx context.Context, l *log.Log, d Definition, filter string, seq uint64, more int,
	fn func(db dbx.Builder, last events.Event) error) error {
	memory, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		return fmt.Errorf("open read models in memory: %w", err)
	}
	defer memory.Close()
	memory.SetMaxOpenConns(1) // a second connection would be a second database
	f := newFile("", memory)
	f.readers = dbx.NewFromDB(memory, "sqlite")
	if err := f.prepare(ctx, d); err != nil {
		return fmt.Errorf("open read models in memory: %w", err)
	}
	defer f.tx.close() // a connection that stays open keeps the whole database in memory
	if err := f.dropTriggers(ctx); err != nil {
		return fmt.Errorf("open read models in memory: %w", err)
	}
	m := &moments{file: f, decode: d.Decode, viewer: &viewer{conn: f.tx.conn, statements: map[string]*sql.Stmt{}},
		seq: seq, more: more, fn: fn}
	defer m.viewer.closeStatements()
	_, err = l.Fold(ctx, filter, 0, func(e events.Event) error { return m.take(ctx, e) })
	if err == nil {
		err = m.show(ctx)
	}
	switch {
	case err == nil, errors.Is(err, events.ErrStop), m.failed != nil:
		return m.failed
	}
	return fmt.Errorf("compute %s as of #%d: %w", filter, seq, err)
}

// dropTriggers drops the triggers that keep indexes of texts up to date: these texts are not searched.
func (f *file) dropTriggers(ctx context.Context) error {
	drops, err := texts(ctx, f.tx.conn, "SELECT 'DROP TRIGGER ' || name FROM sqlite_schema WHERE type='trigger'")
	if err != nil {
		return err
	}
	return f.tx.execute(drops)
}

// moments computes read models in memory, one moment after the other.
type moments struct {
	*file
	viewer *viewer // on the connection that writes
	decode func(events.Event) (any, error)
	seq    uint64 // of the next moment that fn gets
	more   int    // moments after that one
	fn     func(db dbx.Builder, last events.Event) error
	failed error // of fn

	batch []events.Event // that are not applied yet
	last  events.Event
}

// take applies an event. If it is the first one after a moment that fn gets, take shows that moment before.
func (m *moments) take(ctx context.Context, e events.Event) error {
	if e.Seq > m.seq {
		if err := m.show(ctx); err != nil {
			return err
		}
		if m.more == 0 {
			return events.ErrStop
		}
		m.seq = e.Seq
		m.more--
	}
	m.last = e
	if m.batch = append(m.batch, e); len(m.batch) < log.MaxBatch {
		return nil
	}
	return m.apply()
}

func (m *moments) apply() error {
	batch := m.batch
	m.batch = nil
	return m.commit(decodeAll(m.decode, batch))
}

// show calls fn with the read models as they are.
func (m *moments) show(ctx context.Context) error {
	if m.last.Seq == 0 {
		return ErrNoEvents
	}
	if err := m.apply(); err != nil {
		return err
	}
	if _, err := m.viewer.begin(ctx); err != nil {
		return err
	}
	m.failed = m.fn(dbx.NewSqliteBuilder(m.readers.WithContext(ctx), m.viewer), m.last)
	if m.failed != nil {
		return m.failed
	}
	if err := ctx.Err(); err != nil { // an interrupted query may return fewer rows without an error
		return err
	}
	return m.viewer.end()
}
