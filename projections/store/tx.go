package store

import (
	"context"
	"database/sql"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"pocketcoder/events"
)

// Tx is the transaction in which a batch of events is applied, on the only connection that writes. One Tx serves all
// batches of a file. It keeps the first failure of SQLite until the event has been applied, so that Table methods need
// not return errors.
type Tx struct {
	*connection
	apply   Apply
	seq     int64        // of the event being applied
	at      string       // time of the event being applied, in events.TimeFormat
	changed []changedRow // by the batch, in tables that clients see
	wake    bool         // the batch has an event for which Wake was called
	err     error
	tables  []interface {
		keep()
		undo()
		flush() error
		settle()
		forget()
		changedSince(seq uint64) ([]changedRow, error)
	}
}

func newTx(conn *sql.Conn, open func(*Tx) Apply) *Tx {
	tx := &Tx{connection: newConnection(conn)}
	tx.apply = open(tx)
	return tx
}

// Seq returns the sequence of the event being applied.
func (tx *Tx) Seq() int64 { return tx.seq }

// EventTime returns the time of the event being applied, in events.TimeFormat.
func (tx *Tx) EventTime() string { return tx.at }

// Wake makes Model.Awake return once the batch is committed.
func (tx *Tx) Wake() { tx.wake = true }

func (tx *Tx) fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// commit applies the events and moves the checkpoint to the last of them, in one transaction. If a row of theirs cannot
// be written, commit starts over and applies each event after a savepoint of its own.
func (tx *Tx) commit(batch []decodedEvent) error {
	err := tx.transact(func() error {
		for _, d := range batch {
			if err := tx.applyEvent(d); err != nil {
				return err
			}
		}
		return tx.end(batch)
	})
	if err == nil || !isPoison(err) {
		return err
	}
	return tx.transact(func() error {
		for _, d := range batch {
			if err := tx.applyAlone(d); err != nil {
				return err
			}
		}
		return tx.end(batch)
	})
}

func (tx *Tx) transact(do func() error) error {
	if err := tx.run("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	tx.err, tx.changed, tx.wake = nil, nil, false
	err := do()
	if err == nil {
		if err = tx.run("COMMIT"); err == nil {
			return nil
		}
	}
	tx.forget()
	_ = tx.exec("ROLLBACK") // the first error matters; after some errors SQLite has rolled back already
	return err
}

// end writes the changed rows and the checkpoint.
func (tx *Tx) end(batch []decodedEvent) error {
	if err := tx.flush(); err != nil {
		return err
	}
	for _, t := range tx.tables {
		t.settle()
	}
	last := batch[len(batch)-1].Seq
	if err := tx.run("UPDATE checkpoint SET seq=? WHERE id='log'", last); err != nil {
		return fmt.Errorf("write checkpoint %d: %w", last, err)
	}
	return nil
}

// applyEvent sets an event aside that cannot be applied.
func (tx *Tx) applyEvent(d decodedEvent) error {
	err := d.err
	if err == nil {
		tx.seq, tx.at = int64(d.Seq), d.Time.UTC().Format(events.TimeFormat)
		err = tx.apply(d.Event, d.body)
	}
	if tx.err != nil {
		return tx.err
	}
	for _, t := range tx.tables {
		if err == nil {
			t.keep()
		} else {
			t.undo()
		}
	}
	if err != nil {
		return tx.setAside(d.Event, err)
	}
	return nil
}

// applyAlone applies one event after it has written the rows that earlier events changed, so that only this event is
// rolled back if it fails.
func (tx *Tx) applyAlone(d decodedEvent) error {
	if err := tx.exec("SAVEPOINT event"); err != nil {
		return err
	}
	changed := len(tx.changed)
	err := tx.applyEvent(d)
	if err == nil {
		err = tx.flush()
	}
	switch {
	case err == nil:
		return tx.exec("RELEASE event")
	case !isPoison(err):
		return err
	}
	tx.forget()
	tx.changed = tx.changed[:changed]
	if err := tx.exec("ROLLBACK TO event"); err != nil {
		return err
	}
	return tx.setAside(d.Event, err)
}

func (tx *Tx) setAside(e events.Event, cause error) error {
	err := tx.run("INSERT INTO dead_letters(seq,subject,error,data) VALUES(?,?,?,?)", e.Seq, e.RawSubject, cause.Error(),
		string(e.Data))
	if err != nil {
		return fmt.Errorf("set aside #%d: %w", e.Seq, err)
	}
	return nil
}

func (tx *Tx) flush() error {
	for _, t := range tx.tables {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) forget() {
	for _, t := range tx.tables {
		t.forget()
	}
}

// run executes a statement that it keeps prepared.
func (tx *Tx) run(query string, args ...any) error {
	s, err := tx.prepare(context.Background(), query)
	if err == nil {
		_, err = s.ExecContext(context.Background(), args...)
	}
	return err
}

func (tx *Tx) exec(query string) error {
	_, err := tx.conn.ExecContext(context.Background(), query)
	return err
}

func (tx *Tx) execute(statements []string) error {
	for _, s := range statements {
		if err := tx.exec(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// isPoison reports whether an event caused err, and not the disk or the file.
func isPoison(err error) bool {
	switch codeOf(err) {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return true
	}
	return false
}
