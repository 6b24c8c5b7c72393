package projections

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"pocketcoder/events"
)

// Tx is the one transaction in which a batch of events is applied, on the writer's only connection. A failure of SQLite
// is kept in it until the event is done, so that Apply reads straight.
type Tx struct {
	conn       *sql.Conn
	seq        int64        // of the event being applied
	at         string       // and its time, in TimeFormat
	changed    []changedRow // what clients see of the batch, once it is committed
	err        error
	statements []*sql.Stmt
	tables     []interface {
		flush() error
		forget()
		changedSince(seq uint64) ([]changedRow, error)
	}

	sessions    *table[Session, *Session]
	messages    *table[Message, *Message]
	parts       *table[part, *part]
	engineIDs   *table[engineID, *engineID]
	chats       *table[Chat, *Chat]
	permissions *table[Permission, *Permission]
	questions   *table[Question, *Question]
	executions  *table[Execution, *Execution]
	artifacts   *table[Artifact, *Artifact]
	commands    *table[Command, *Command]
	subagents   *table[Subagent, *Subagent]
	config      *table[Config, *Config]
	users       *table[User, *User]
	checkpoint  *sql.Stmt
	deadLetter  *sql.Stmt
}

// newTx prepares the statements on the connection; it is used for every batch.
func newTx(conn *sql.Conn) (*Tx, error) {
	tx := &Tx{conn: conn}
	tx.sessions = openTable[Session](tx, "sessions", false)
	tx.messages = openTable[Message](tx, "messages", true)
	tx.parts = openTable[part](tx, "parts", false) // shown in their messages
	tx.engineIDs = openTable[engineID](tx, "engine_ids", false)
	tx.chats = openTable[Chat](tx, "chats", true)
	tx.permissions = openTable[Permission](tx, "permissions", true)
	tx.questions = openTable[Question](tx, "questions", true)
	tx.executions = openTable[Execution](tx, "executions", true)
	tx.artifacts = openTable[Artifact](tx, "artifacts", true)
	tx.commands = openTable[Command](tx, "commands", true)
	tx.subagents = openTable[Subagent](tx, "subagents", true)
	tx.config = openTable[Config](tx, "config", true)
	tx.users = openTable[User](tx, "users", true)
	tx.checkpoint = tx.prepare("UPDATE checkpoint SET seq=?")
	tx.deadLetter = tx.prepare("INSERT INTO dead_letters(seq,subject,error,data) VALUES(?,?,?,?)")
	return tx, tx.err
}

func (tx *Tx) prepare(query string) *sql.Stmt {
	s, err := tx.conn.PrepareContext(context.Background(), query)
	if err != nil {
		tx.fail(fmt.Errorf("prepare %q: %w", query, err))
	}
	tx.statements = append(tx.statements, s)
	return s
}

// close gives up the statements and the connection: one left open would keep the file from being closed.
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

// commit applies the events and moves the checkpoint to the last of them, in one transaction. An event that cannot be
// applied makes it start over, event by event, with a savepoint before each.
func (tx *Tx) commit(batch []decoded) error {
	err := tx.transact(func() error {
		for _, d := range batch {
			if d.err != nil {
				if err := tx.setAside(d.Event, d.err); err != nil {
					return err
				}
			} else if err := tx.apply(d); err != nil {
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
	tx.err, tx.changed = nil, nil
	err := do()
	if err == nil {
		if err = tx.exec("COMMIT"); err == nil {
			return nil
		}
	}
	tx.forget()
	_ = tx.exec("ROLLBACK") // the first error is what matters; some of them have rolled back already
	return err
}

// end writes what changed and the checkpoint.
func (tx *Tx) end(batch []decoded) error {
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

// apply lets every projection of its scope see the event.
func (tx *Tx) apply(d decoded) error {
	tx.seq, tx.at = int64(d.Seq), d.Time.UTC().Format(TimeFormat)
	for _, p := range projections {
		if p.Scope() != d.Subject.Scope {
			continue
		}
		err := p.Apply(tx, d.Event, d.body)
		if tx.err != nil {
			return tx.err
		}
		if err != nil {
			return poison{fmt.Errorf("apply #%d %s to %s: %w", d.Seq, d.RawSubject, p.Name(), err)}
		}
	}
	return nil
}

// applyAlone applies one event with everything before it written, so that it can be taken back alone.
func (tx *Tx) applyAlone(d decoded) error {
	if err := tx.exec("SAVEPOINT event"); err != nil {
		return err
	}
	changed := len(tx.changed)
	err := d.err
	if err == nil {
		if err = tx.apply(d); err == nil {
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

// poison is the error of an event that does not fit the rows.
type poison struct{ error }

func (p poison) Unwrap() error { return p.error }

// isPoison says whether the event is to blame for err, and not the disk or the file.
func isPoison(err error) bool {
	if errors.As(err, new(poison)) {
		return true
	}
	var s *sqlite.Error
	if !errors.As(err, &s) {
		return false
	}
	switch s.Code() & 0xff { // the primary code
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return true
	}
	return false
}
