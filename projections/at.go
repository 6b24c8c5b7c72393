package projections

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// ErrNoChat says that a chat had no event yet.
var ErrNoChat = errors.New("there was no such chat")

// At calls fn with read models that hold one chat, and nothing else, as it stood after the event at seq: computed from the
// log, in memory, and forgotten afterwards. It fails with ErrNoChat when the chat had no event by then. An error of fn is
// given back as it is.
func At(ctx context.Context, log *log.Log, chat string, seq uint64, fn func(db dbx.Builder) error) error {
	memory, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		return fmt.Errorf("open read models in memory: %w", err)
	}
	defer memory.Close()
	memory.SetMaxOpenConns(1) // another connection would be another database
	f := newFile("", memory)
	f.readers = dbx.NewFromDB(memory, "sqlite")
	if err := f.prepare(ctx); err != nil {
		return fmt.Errorf("open read models in memory: %w", err)
	}
	err = f.fold(ctx, log, chat, seq)
	if err = errors.Join(err, f.tx.close()); err != nil {
		return fmt.Errorf("compute chat %s as of #%d: %w", chat, seq, err)
	}
	if f.seq == 0 {
		return fmt.Errorf("compute chat %s as of #%d: %w", chat, seq, ErrNoChat)
	}
	return f.view(ctx, func(db dbx.Builder, _ uint64) error { return fn(db) })
}

// fold applies the events of a chat up to seq.
func (f *file) fold(ctx context.Context, l *log.Log, chat string, seq uint64) error {
	var batch []events.Event
	_, err := l.Fold(ctx, events.ChatFilter(chat), 0, func(e events.Event) error {
		if e.Seq > seq {
			return events.ErrStop
		}
		if batch = append(batch, e); len(batch) < log.MaxBatch {
			return nil
		}
		defer func() { batch = nil }()
		return f.commit(decodeAll(batch))
	})
	if err != nil && !errors.Is(err, events.ErrStop) {
		return err
	}
	return f.commit(decodeAll(batch))
}
