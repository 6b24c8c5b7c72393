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

// At calls fn with read models that hold only the events up to seq whose subject matches filter. It computes them in memory
// from the log. It returns ErrNoEvents if there are no such events, and an error of fn unchanged.
func At(ctx context.Context, log *log.Log, d Definition, filter string, seq uint64, fn func(db dbx.Builder) error) error {
	memory, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		return fmt.Errorf("open read models in memory: %w", err)
	}
	defer memory.Close()
	memory.SetMaxOpenConns(1) // a second connection would be a second database
	f := newFile("", memory)
	defer f.closeViewers() // a connection that stays open keeps the whole database in memory
	f.readers = dbx.NewFromDB(memory, "sqlite")
	if err := f.prepare(ctx, d); err != nil {
		return fmt.Errorf("open read models in memory: %w", err)
	}
	err = f.applyUpTo(ctx, log, d, filter, seq)
	if err = errors.Join(err, f.tx.close()); err != nil {
		return fmt.Errorf("compute %s as of #%d: %w", filter, seq, err)
	}
	if f.seq == 0 {
		return fmt.Errorf("compute %s as of #%d: %w", filter, seq, ErrNoEvents)
	}
	return f.view(ctx, func(db dbx.Builder, _ uint64) error { return fn(db) })
}

// applyUpTo applies the events up to seq whose subject matches filter.
func (f *file) applyUpTo(ctx context.Context, l *log.Log, d Definition, filter string, seq uint64) error {
	var batch []events.Event
	_, err := l.Fold(ctx, filter, 0, func(e events.Event) error {
		if e.Seq > seq {
			return events.ErrStop
		}
		if batch = append(batch, e); len(batch) < log.MaxBatch {
			return nil
		}
		defer func() { batch = nil }()
		return f.commit(decodeAll(d.Decode, batch))
	})
	if err != nil && !errors.Is(err, events.ErrStop) {
		return err
	}
	return f.commit(decodeAll(d.Decode, batch))
}
