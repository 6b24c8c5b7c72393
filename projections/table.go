package projections

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// table is the rows of one SQL table as a batch of events sees them: read when first asked for, changed in memory, and
// written once when the batch ends, however often they changed. R is the row's struct; its db tags are the columns.
type table[R comparable, P interface {
	*R
	record() *Record
}] struct {
	tx         *Tx
	name       string
	shown      bool // to clients
	load, save *sql.Stmt
	rows       map[string]*cached[R]
	dirty      []string // ids of rows that are to be written
}

type cached[R any] struct {
	row          R
	found, dirty bool
}

// openTable prepares the two statements of a table on the writer's connection. Changes of one that clients are shown are
// told to followers.
func openTable[R comparable, P interface {
	*R
	record() *Record
}](tx *Tx, name string, shown bool) *table[R, P] {
	columns := columnsOf(reflect.TypeFor[R]())
	set := make([]string, 0, len(columns))
	for _, c := range columns[1:] {
		set = append(set, c+"=excluded."+c)
	}
	t := &table[R, P]{tx: tx, name: name, shown: shown, rows: map[string]*cached[R]{}}
	t.load = tx.prepare("SELECT " + strings.Join(columns, ",") + " FROM " + name + " WHERE id=?")
	t.save = tx.prepare("INSERT INTO " + name + "(" + strings.Join(columns, ",") + ") VALUES(?" + strings.Repeat(",?", len(columns)-1) +
		") ON CONFLICT(id) DO UPDATE SET " + strings.Join(set, ","))
	tx.tables = append(tx.tables, t)
	return t
}

// get gives the row of an id and whether there is one; without one, the row has its id alone.
func (t *table[R, P]) get(id string) (R, bool) {
	c := t.rows[id]
	if c == nil {
		c = &cached[R]{}
		P(&c.row).record().ID = id
		if err := t.load.QueryRowContext(context.Background(), id).Scan(pointers(&c.row)...); err == nil {
			c.found = true
		} else if !errors.Is(err, sql.ErrNoRows) {
			t.tx.fail(fmt.Errorf("read %s %s: %w", t.name, id, err))
		}
		t.rows[id] = c
	}
	return c.row, c.found
}

// put stores the row under its id. A row that is as it was stays as it was, its updated time too; of one that is gone and
// stays so, nobody is told any more.
func (t *table[R, P]) put(row R) {
	r := P(&row).record()
	old, found := t.get(r.ID)
	if found && old == row {
		return
	}
	if !r.Removed || !P(&old).record().Removed {
		r.stamp(t.tx.at, t.tx.seq)
	}
	t.change(r.ID, row)
}

// touch notes a change of a row whose part in another table has changed.
func (t *table[R, P]) touch(id string) {
	row, found := t.get(id)
	if r := P(&row).record(); found && !r.Removed {
		r.stamp(t.tx.at, t.tx.seq)
		t.change(id, row)
	}
}

func (t *table[R, P]) change(id string, row R) {
	c := t.rows[id]
	if !c.dirty {
		t.dirty = append(t.dirty, id)
	}
	*c = cached[R]{row: row, found: true, dirty: true}
}

// flush writes the changed rows in the order in which they changed first.
func (t *table[R, P]) flush() error {
	for _, id := range t.dirty {
		c := t.rows[id]
		if _, err := t.save.ExecContext(context.Background(), values(&c.row)...); err != nil {
			return fmt.Errorf("write %s %s: %w", t.name, id, err)
		}
		c.dirty = false
		if t.shown {
			t.tx.changed = append(t.tx.changed, changedRow{t.name, *P(&c.row).record()})
		}
	}
	t.dirty = t.dirty[:0]
	return nil
}

// forget drops what is remembered of the rows.
func (t *table[R, P]) forget() {
	clear(t.rows)
	t.dirty = t.dirty[:0]
}

// changedSince gives the rows that clients see and that an event after seq changed.
func (t *table[R, P]) changedSince(seq uint64) ([]changedRow, error) {
	if !t.shown {
		return nil, nil
	}
	found, err := t.tx.conn.QueryContext(context.Background(), "SELECT id,first_seq,last_seq,removed FROM "+t.name+" WHERE last_seq>? ORDER BY last_seq", seq)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []changedRow
	for found.Next() {
		r := changedRow{table: t.name}
		if err := found.Scan(&r.ID, &r.First, &r.Last, &r.Removed); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// columnsOf lists the db tags of a row's struct, embedded ones included, in the order of pointers and values.
func columnsOf(t reflect.Type) []string {
	var columns []string
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			columns = append(columns, columnsOf(f.Type)...)
		} else {
			columns = append(columns, f.Tag.Get("db"))
		}
	}
	return columns
}

func pointers[R any](row *R) []any {
	return appendFields(nil, reflect.ValueOf(row).Elem(), func(f reflect.Value) any { return f.Addr().Interface() })
}

func values[R any](row *R) []any {
	return appendFields(nil, reflect.ValueOf(row).Elem(), reflect.Value.Interface)
}

func appendFields(to []any, v reflect.Value, give func(reflect.Value) any) []any {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Struct {
			to = appendFields(to, f, give)
		} else {
			to = append(to, give(f))
		}
	}
	return to
}
