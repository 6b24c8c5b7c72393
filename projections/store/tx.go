package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"pocketcoder/events"
)

// Tx is the transaction in which a batch of events is applied, on the only connection that writes. One Tx serves all
// batches of a file. It keeps the first failure of SQLite until the event has been applied, so that Table methods need
// not return errors.
type Tx struct {
	conn       *sql.Conn
	apply      Apply
	seq        int64        // of the event being applied
	at         string       // time of the event being applied, in events.TimeFormat
	changed    []changedRow // by the batch, in tables that clients see
	wake       bool         // the batch has an event for which Wake was called
	err        error
	statements []*sql.Stmt
	tables     []interface {
		flush() error
		forget()
		changedSince(seq uint64) ([]changedRow, error)
	}
	checkpoint *sql.Stmt
	deadLetter *sql.Stmt
}

// newTx prepares the statements on the connection.
func newTx(conn *sql.Conn, open func(*Tx) Apply) (*Tx, error) {
	tx := &Tx{conn: conn}
	tx.apply = open(tx)
	tx.checkpoint = tx.prepare("UPDATE checkpoint SET seq=?")
	tx.deadLetter = tx.prepare("INSERT INTO dead_letters(seq,subject,error,data) VALUES(?,?,?,?)")
	return tx, tx.err
}

// Seq returns the sequence of the event being applied.
func (tx *Tx) Seq() int64 { return tx.seq }

// EventTime returns the time of the event being applied, in events.TimeFormat.
func (tx *Tx) EventTime() string { return tx.at }

// Wake makes Model.Awake return once the batch is committed.
func (tx *Tx) Wake() { tx.wake = true }

func (tx *Tx) prepare(query string) *sql.Stmt {
	s, err := tx.conn.PrepareContext(context.Background(), query)
	if err != nil {
		tx.fail(fmt.Errorf("prepare %q: %w", query, err))
	}
	tx.statements = append(tx.statements, s)
	return s
}

// close closes the statements and the connection. The file cannot be closed while one of them is open.
func (tx *Tx) close() error {
	var err error
	for _, s := range tx.statements {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, tx.conn.Close())
}

func (tx *Tx) fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// commit applies the events and moves the checkpoint to the last of them, in one transaction. If an event cannot be
// applied, commit starts over and applies each event after a savepoint of its own.
func (tx *Tx) commit(batch []decodedEvent) error {
	err := tx.transact(func() error {
		for _, d := range batch {
			if d.err != nil {
				if err := tx.setAside(d.Event, d.err); err != nil {
					return err
				}
			} else if err := tx.applyEvent(d); err != nil {
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
	if err := tx.exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	tx.err, tx.changed, tx.wake = nil, nil, false
	err := do()
	if err == nil {
		if err = tx.exec("COMMIT"); err == nil {
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
	tx.forget()
	last := batch[len(batch)-1].Seq
	if _, err := tx.checkpoint.ExecContext(context.Background(), last); err != nil {
		return fmt.Errorf("write checkpoint %d: %w", last, err)
	}
	return nil
}

func (tx *Tx) applyEvent(d decodedEvent) error {
	tx.seq, tx.at = int64(d.Seq), d.Time.UTC().Format(events.TimeFormat)
	err := tx.apply(d.Event, d.body)
	if tx.err != nil {
		return tx.err
	}
	if err != nil {
		return poisonError{err}
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
	err := d.err
	if err == nil {
		if err = tx.applyEvent(d); err == nil {
			if err = tx.flush(); err == nil {
				return tx.exec("RELEASE event")
			}
		}
		if !isPoison(err) {
			return err
		}
	}
	tx.forget()
	tx.changed = tx.changed[:changed]
	if err := tx.exec("ROLLBACK TO event"); err != nil {
		return err
	}
	return tx.setAside(d.Event, err)
}

func (tx *Tx) setAside(e events.Event, cause error) error {
	_, err := tx.deadLetter.ExecContext(context.Background(), e.Seq, e.RawSubject, cause.Error(), string(e.Data))
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

// poisonError is the error of an event that does not fit the rows.
type poisonError struct{ error }

func (p poisonError) Unwrap() error { return p.error }

// isPoison reports whether the event caused err, and not the disk or the file.
func isPoison(err error) bool {
	switch codeOf(err) {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return true
	}
	return errors.As(err, new(poisonError))
}
