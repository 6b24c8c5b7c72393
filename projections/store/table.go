package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Table holds the rows of one SQL table while a batch of events is applied, and a few of them until the next one. It
// reads a row on first use, changes it in memory, and writes it once at the end of the batch. R is the struct of a row.
// It embeds Record, and its db tags name the columns; id is the first.
type Table[R comparable] struct {
	tx           *Tx
	name         string
	shown        bool
	record       func(*R) *Record
	columns      []string
	load, insert string // the SQL that does it
	rows         map[string]*cached[R]
	dirty        []string     // ids of the rows to write
	before       []earlier[R] // what the changes of the event being applied have replaced, in order
}

// earlier is a cached row before a change.
type earlier[R any] struct {
	id  string
	row cached[R]
}

type cached[R any] struct {
	row          R
	found, dirty bool
	stored       *R // the row in the file, nil for none
}

// row is a pointer to a struct that embeds Record.
type row[R any] interface {
	*R
	record() *Record
}

// OpenTable opens a table. Feeds report its changed rows if shown is true. Definition.Open calls it.
func OpenTable[R comparable, P row[R]](tx *Tx, name string, shown bool) *Table[R] {
	t := &Table[R]{tx: tx, name: name, shown: shown, record: func(r *R) *Record { return P(r).record() },
		columns: Columns[R](), rows: map[string]*cached[R]{}}
	columns := strings.Join(t.columns, ",")
	t.load = "SELECT " + columns + " FROM " + name + " WHERE id=?"
	t.insert = "INSERT INTO " + name + "(" + columns + ") VALUES(?" + strings.Repeat(",?", len(t.columns)-1) + ")"
	tx.tables = append(tx.tables, t)
	return t
}

// Get returns the row of an id, and whether the row exists. The row of an unknown id is empty except for the id.
func (t *Table[R]) Get(id string) (R, bool) {
	c := t.rows[id]
	if c == nil {
		c = &cached[R]{}
		t.record(&c.row).ID = id
		if err := t.read(id, &c.row); err == nil {
			stored := c.row
			c.found, c.stored = true, &stored
		} else if !errors.Is(err, sql.ErrNoRows) {
			t.tx.fail(fmt.Errorf("read %s %s: %w", t.name, id, err))
		}
		t.rows[id] = c
	}
	return c.row, c.found
}

func (t *Table[R]) read(id string, row *R) error {
	s, err := t.tx.prepare(context.Background(), t.load)
	if err != nil {
		return err
	}
	return s.QueryRowContext(context.Background(), id).Scan(pointers(row)...)
}

// Put stores the row under its id. An equal row changes nothing, not even the time of the last change. A removed row
// that stays removed gets no new time or sequence, so readers learn of the removal only once.
func (t *Table[R]) Put(row R) {
	r := t.record(&row)
	old, found := t.Get(r.ID)
	if found && old == row {
		return
	}
	if !r.Removed || !t.record(&old).Removed {
		r.stamp(t.tx.at, t.tx.seq)
	}
	t.change(r.ID, row)
}

// Touch marks a row as changed, because a part of it that lies in another table has changed.
func (t *Table[R]) Touch(id string) {
	row, found := t.Get(id)
	if r := t.record(&row); found && !r.Removed {
		r.stamp(t.tx.at, t.tx.seq)
		t.change(id, row)
	}
}

func (t *Table[R]) change(id string, row R) {
	c := t.rows[id]
	t.before = append(t.before, earlier[R]{id, *c})
	if !c.dirty {
		t.dirty = append(t.dirty, id)
	}
	*c = cached[R]{row: row, found: true, dirty: true, stored: c.stored}
}

// flush writes the changed rows in the order of their first change.
func (t *Table[R]) flush() error {
	for _, id := range t.dirty {
		c := t.rows[id]
		if err := t.write(c); err != nil {
			return fmt.Errorf("write %s %s: %w", t.name, id, err)
		}
		if t.shown {
			t.tx.changed = append(t.tx.changed, changedRow{t.name, *t.record(&c.row)})
		}
	}
	t.dirty = t.dirty[:0]
	return nil
}

// write inserts a row, or updates the columns that differ: SQLite would change each index of a column that is set, also
// to an equal value.
func (t *Table[R]) write(c *cached[R]) error {
	query, args := t.insert, values(&c.row)
	if c.stored != nil {
		var changed []any
		var set strings.Builder
		for i, old := range values(c.stored) {
			if args[i] != old {
				changed = append(changed, args[i])
				set.WriteString(", " + t.columns[i] + "=?")
			}
		}
		if len(changed) == 0 {
			c.dirty = false
			return nil
		}
		query, args = "UPDATE "+t.name+" SET "+set.String()[2:]+" WHERE id=?", append(changed, args[0])
	}
	if err := t.tx.run(query, args...); err != nil {
		return err
	}
	stored := c.row
	c.stored, c.dirty = &stored, false
	return nil
}

// keep keeps the changes of the event being applied.
func (t *Table[R]) keep() { t.before = t.before[:0] }

func (t *Table[R]) undo() {
	for _, e := range slices.Backward(t.before) {
		*t.rows[e.id] = e.row
		if !e.row.dirty {
			t.dirty = t.dirty[:len(t.dirty)-1] // change has added it
		}
	}
	t.keep()
}

// The most rows of a table that stay cached after a batch, and the bytes of their texts. Many events change rows that
// the one before has changed. A part can hold a picture.
const (
	maxKept      = 16
	maxKeptBytes = 1 << 20
)

// settle drops the cached rows after a batch if they are many or large.
func (t *Table[R]) settle() {
	if len(t.rows) <= maxKept {
		size := 0
		for _, c := range t.rows {
			for _, v := range values(&c.row) {
				if text := reflect.ValueOf(v); text.Kind() == reflect.String {
					size += text.Len()
				}
			}
		}
		if size <= maxKeptBytes {
			return
		}
	}
	clear(t.rows)
}

// forget drops the cached rows, which may differ from those of the file.
func (t *Table[R]) forget() {
	clear(t.rows)
	t.dirty = t.dirty[:0]
	t.keep()
}

// changedSince returns the rows of a shown table that an event after seq changed.
func (t *Table[R]) changedSince(seq uint64) ([]changedRow, error) {
	if !t.shown {
		return nil, nil
	}
	found, err := t.tx.conn.QueryContext(context.Background(), "SELECT id,first_seq,last_seq,removed FROM "+t.name+
		" WHERE last_seq>? ORDER BY last_seq", seq)
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

// Columns returns the columns of a row's struct.
func Columns[R any]() []string { return columnsOf(reflect.TypeFor[R]()) }

// columnsOf returns the db tags of a struct and of its embedded structs, in the order of pointers and values.
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

func appendFields(to []any, v reflect.Value, argument func(reflect.Value) any) []any {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Struct {
			to = appendFields(to, f, argument)
		} else {
			to = append(to, argument(f))
		}
	}
	return to
}
