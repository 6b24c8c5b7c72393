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
	fields       []reflect.StructField
	load, insert string // the SQL that does it
	rows         map[string]*cached[R]
	bytes        int          // of the texts that were read and written since rows was empty
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
		fields: fieldsOf(reflect.TypeFor[R]()), rows: map[string]*cached[R]{}}
	columns := strings.Join(Columns[R](), ",")
	t.load = "SELECT " + columns + " FROM " + name + " WHERE id=?"
	t.insert = "INSERT INTO " + name + "(" + columns + ") VALUES(?" + strings.Repeat(",?", len(t.fields)-1) + ")"
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
	if err := s.QueryRowContext(context.Background(), id).Scan(t.pointers(row)...); err != nil {
		return err
	}
	t.values(row) // counts their bytes
	return nil
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
	query, args := t.insert, []any(nil)
	if c.stored == nil {
		args = t.values(&c.row)
	} else {
		var set strings.Builder
		row, stored := reflect.ValueOf(&c.row).Elem(), reflect.ValueOf(c.stored).Elem()
		for _, f := range t.fields {
			if v := row.FieldByIndex(f.Index); !v.Equal(stored.FieldByIndex(f.Index)) {
				args = append(args, t.value(v))
				set.WriteString(", " + f.Tag.Get("db") + "=?")
			}
		}
		if len(args) == 0 {
			c.dirty = false
			return nil
		}
		query, args = "UPDATE "+t.name+" SET "+set.String()[2:]+" WHERE id=?", append(args, t.record(&c.row).ID)
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

// settle drops the cached rows after a batch if they are many or may be large.
func (t *Table[R]) settle() {
	if len(t.rows) > maxKept || t.bytes > maxKeptBytes {
		clear(t.rows)
		t.bytes = 0
	}
}

// forget drops the cached rows, which may differ from those of the file.
func (t *Table[R]) forget() {
	clear(t.rows)
	t.bytes = 0
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
func Columns[R any]() (columns []string) {
	for _, f := range fieldsOf(reflect.TypeFor[R]()) {
		columns = append(columns, f.Tag.Get("db"))
	}
	return columns
}

// fieldsOf returns the fields of a struct and of its embedded structs.
func fieldsOf(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Anonymous })
}

func (t *Table[R]) pointers(row *R) []any {
	v, all := reflect.ValueOf(row).Elem(), make([]any, len(t.fields))
	for i, f := range t.fields {
		all[i] = v.FieldByIndex(f.Index).Addr().Interface()
	}
	return all
}

func (t *Table[R]) values(row *R) []any {
	v, all := reflect.ValueOf(row).Elem(), make([]any, len(t.fields))
	for i, f := range t.fields {
		all[i] = t.value(v.FieldByIndex(f.Index))
	}
	return all
}

// value returns the value of a field, and counts its bytes.
func (t *Table[R]) value(v reflect.Value) any {
	if v.Kind() == reflect.String {
		t.bytes += v.Len()
	}
	return v.Interface()
}
