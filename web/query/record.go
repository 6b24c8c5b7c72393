package query

import (
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"pocketcoder/handlers/record"
)

// Record is a record that was read. It holds only what the client selected and may see.
type Record struct {
	shape            *shape
	id               string
	created, updated string
	first, last      int64
	removed          bool
	values           []any // of shape.fields
	expanded         []expansion
}

// expansion holds the records to which a relation of a record leads.
type expansion struct {
	name    string
	several bool
	records []*Record
}

// shape is what the records of one response have in common.
type shape struct {
	c      Collection
	fields []*Field
	pick   *fieldSelection
}

// newShape selects the fields to read: those that are shown and that the caller may see, and those to expand.
func newShape(c Collection, req Request, p *fieldSelection, expand branches) *shape {
	s := &shape{c: c, pick: p}
	for i := range c.Fields {
		f := &c.Fields[i] // large, and there are many
		if isBuiltin(f.Name) || !req.shows(*f) {
			continue
		}
		if _, shown := p.selected(f.Name); shown || expand[f.Name] != nil {
			s.fields = append(s.fields, f)
		}
	}
	return s
}

// columns returns the columns that scan reads.
func (s *shape) columns(alias string) string {
	created, _ := s.c.Field("created")
	updated, _ := s.c.Field("updated")
	list := []string{s.c.idColumn(alias), s.c.column(created, alias), s.c.column(updated, alias), alias + ".first_seq",
		alias + ".last_seq", alias + ".removed"}
	for _, f := range s.fields {
		list = append(list, s.c.column(*f, alias))
	}
	return strings.Join(list, ", ")
}

// scan reads rows. Their records may have at most most bytes, 0 for no limit.
func (s *shape) scan(rows *sql.Rows, most int) (list []Record, err error) {
	list = []Record{}
	left := most
	to := make([]any, 6+len(s.fields))
	for rows.Next() {
		r := Record{shape: s, values: make([]any, len(s.fields))}
		to[0], to[1], to[2], to[3], to[4], to[5] = &r.id, &r.created, &r.updated, &r.first, &r.last, &r.removed
		for i := range r.values {
			to[6+i] = &r.values[i]
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		if left -= r.size(left); left < 0 && most > 0 {
			return nil, tooLarge()
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// size estimates the bytes of the record as JSON, with the records that it expands to. It stops counting beyond most.
func (r *Record) size(most int) int {
	n := 128 + 32*len(r.values) // names, id and dates
	for _, v := range r.values {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
	}
	for _, e := range r.expanded {
		for _, related := range e.records {
			if n > most {
				return n
			}
			n += related.size(most - n)
		}
	}
	return n
}

func (r Record) ID() string { return r.id }

// Get returns the value of a field: a string, int64, float64, bool or json.RawMessage, and nil for a field that was not
// read.
func (r Record) Get(name string) any {
	switch name {
	case "id":
		return r.id
	case "created":
		return r.created
	case "updated":
		return r.updated
	}
	if r.shape == nil {
		return nil
	}
	i := slices.IndexFunc(r.shape.fields, func(f *Field) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	switch f := r.shape.fields[i]; {
	case f.Kind == record.JSON:
		return json.RawMessage(appendField(nil, f, r.values[i]))
	case f.Kind == record.Bool:
		return toBool(r.values[i])
	case f.Kind == record.Number:
		return toNumber(r.values[i])
	}
	return toText(r.values[i])
}

// Text returns the value of a text field. It returns "" for other fields and for fields that were not read.
func (r Record) Text(name string) string {
	text, _ := r.Get(name).(string)
	return text
}

// IsTrue reports whether a field holds true.
func (r Record) IsTrue(name string) bool {
	value, _ := r.Get(name).(bool)
	return value
}

// IsSet reports whether the record stores a value in a field that was read. Get returns 0 for a number that is not set.
func (r Record) IsSet(name string) bool {
	if r.shape == nil {
		return false
	}
	i := slices.IndexFunc(r.shape.fields, func(f *Field) bool { return f.Name == name })
	return i >= 0 && r.values[i] != nil
}

// related returns the id in a relation, empty for none.
func (r *Record) related(f Field) string {
	i := slices.IndexFunc(r.shape.fields, func(own *Field) bool { return own.Name == f.Name })
	if i < 0 {
		return ""
	}
	return toText(r.values[i])
}

func toBool(v any) bool {
	switch v := v.(type) {
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v == "true" || v == "1"
	}
	return false
}

// toNumber returns a number as int64 or float64, and 0 for any other value.
func toNumber(v any) any {
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			return toNumber(f)
		}
	}
	return int64(0)
}

func toText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// Names returns the names of the record's own fields.
func (r Record) Names() (all []string) {
	if r.shape != nil {
		for _, f := range r.shape.fields {
			all = append(all, f.Name)
		}
	}
	return all
}
