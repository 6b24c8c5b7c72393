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
	load, save *sql.Stmt
	rows       map[string]*cached[R]
}

type cached[R any] struct {
	row          R
	found, dirty bool
}

// openTable prepares the two statements of a table on the writer's connection.
func openTable[R comparable, P interface {
	*R
	record() *Record
}](tx *Tx, name string) *table[R, P] {
	columns := columnsOf(reflect.TypeFor[R]())
	set := make([]string, 0, len(columns))
	for _, c := range columns[1:] {
		set = append(set, c+"=excluded."+c)
	}
	t := &table[R, P]{tx: tx, name: name, rows: map[string]*cached[R]{}}
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

// put stores the row under its id. A row that is as it was stays as it was, its updated time too.
func (t *table[R, P]) put(row R) {
	id := P(&row).record().ID
	if old, found := t.get(id); found && old == row {
		return
	}
	P(&row).record().stamp(t.tx.at)
	*t.rows[id] = cached[R]{row: row, found: true, dirty: true}
}

// touch moves the updated time of a row forward that has changed in another table.
func (t *table[R, P]) touch(id string) {
	if row, found := t.get(id); found {
		P(&row).record().stamp(t.tx.at)
		*t.rows[id] = cached[R]{row: row, found: true, dirty: true}
	}
}

// flush writes the changed rows.
func (t *table[R, P]) flush() error {
	for id, c := range t.rows {
		if !c.dirty {
			continue
		}
		if _, err := t.save.ExecContext(context.Background(), values(&c.row)...); err != nil {
			return fmt.Errorf("write %s %s: %w", t.name, id, err)
		}
		c.dirty = false
	}
	return nil
}

// forget drops what is remembered of the rows.
func (t *table[R, P]) forget() { clear(t.rows) }

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
