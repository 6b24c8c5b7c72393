package query

import (
	"fmt"
	"strconv"
	"strings"

	"pocketcoder/handlers/record"
)

// walk follows a path of relations to a field.
type walk struct {
	*scope
	joins *joins
	name  string // the whole path, for errors
}

// from follows the segments from a row that a path has reached.
func (w *walk) from(p joinedRow, path string, segments []string) (operand, error) {
	for i, segment := range segments {
		if i == len(segments)-1 {
			return w.field(p, path, segment)
		}
		f, found := w.find(p, segment)
		if found && f.Kind == record.JSON {
			return w.json(p, f, segments[i+1:])
		}
		if i >= maxPath {
			return operand{}, w.invalid("too_deep", "%q follows more than %d relations", w.name, maxPath)
		}
		if found && f.Kind == record.Relation && i == len(segments)-2 && segments[i+1] == "id" {
			return w.field(p, path, segment) // the id is in the record itself
		}
		path += "." + segment
		next, ok, err := w.step(p, f, found, path, segment)
		if err != nil {
			return operand{}, err
		}
		if !ok {
			return w.missing(segment)
		}
		p = next
	}
	return w.missing(w.name)
}

// find returns a field of a row. A client does not find a field that it may not see.
func (w *walk) find(p joinedRow, name string) (Field, bool) {
	f, found := p.collection.Field(name)
	return f, found && (w.trusted || w.Req.shows(f))
}

func (w *walk) missing(segment string) (operand, error) {
	return operand{}, w.invalid("unknown_field", "unknown field %q", segment)
}

// step follows one relation or back-relation.
func (w *walk) step(p joinedRow, f Field, found bool, path, segment string) (next joinedRow, ok bool,
	err error) {
	if !found {
		return w.back(p, path, segment)
	}
	to, ok := w.Cat.Get(f.Relation)
	if f.Kind != record.Relation || !ok {
		return joinedRow{}, false, nil
	}
	value := p.collection.column(f, p.alias)
	next, err = w.join(w.joins, path, p, to, false, false, func(alias string) string {
		return to.idColumn(alias) + " = " + value
	})
	return next, true, err
}

func (w *walk) back(p joinedRow, path, segment string) (next joinedRow, ok bool, err error) {
	from, f, ok := w.Cat.backRelation(p.collection, segment)
	if !ok {
		return joinedRow{}, false, nil
	}
	id := p.collection.idColumn(p.alias)
	next, err = w.join(w.joins, path, p, from, true, true, func(alias string) string {
		return from.column(f, alias) + " = " + id
	})
	return next, true, err
}

// field compiles the field at the end of a path.
func (w *walk) field(p joinedRow, path, segment string) (operand, error) {
	name, modifier, err := w.splitModifier(segment)
	if err != nil {
		return operand{}, err
	}
	f, ok := w.find(p, name)
	if !ok {
		return w.missing(name)
	}
	o := operand{sql: p.collection.column(f, p.alias), many: p.many, all: p.all}
	switch {
	case modifier == "length" && f.Kind == record.JSON:
		o.sql = lengthOf(o.sql)
		return o, nil
	case modifier == "each" && f.Kind == record.JSON:
		each, err := w.joinEach(w.joins, path+"."+segment, p, true, listOf(o.sql))
		return operand{sql: each.alias + ".value", many: true, all: each.all}, err
	case f.Kind == record.JSON:
		o.sql, o.nulls = extract(o.sql, ""), nullDiffersFromEmpty
	}
	if modifier == "lower" {
		o.sql = "lower(" + o.sql + ")"
	}
	return o, nil
}

// json compiles a path inside a JSON field. Numbers are indexes of a list, other segments are keys.
func (w *walk) json(p joinedRow, f Field, keys []string) (operand, error) {
	var b strings.Builder
	b.WriteString("$")
	for _, key := range keys {
		if _, err := strconv.ParseUint(key, 10, 31); err == nil {
			b.WriteString("[" + key + "]")
		} else {
			b.WriteString(`."` + key + `"`)
		}
	}
	return operand{sql: extract(p.collection.column(f, p.alias), w.Bind(b.String())), nulls: nullDiffersFromEmpty,
		many: p.many,
		all:  p.all}, nil
}

// extract returns the value at a path in JSON. Text that is not JSON is its own value, and has no parts.
func extract(sql, path string) string {
	if path == "" {
		return fmt.Sprintf("(CASE WHEN json_valid(%s) THEN json_extract(%[1]s, '$') ELSE %[1]s END)", sql)
	}
	return fmt.Sprintf("(CASE WHEN json_valid(%s) THEN json_extract(%[1]s, %[2]s) END)", sql, path)
}

// listOf returns a value as a JSON list. A single value becomes a list of one.
func listOf(sql string) string {
	return fmt.Sprintf("CASE WHEN iif(json_valid(%s), json_type(%[1]s) = 'array', 0) THEN %[1]s ELSE json_array(%[1]s) END", sql)
}

func lengthOf(sql string) string {
	return fmt.Sprintf("(CASE WHEN coalesce(%s, '') = '' THEN 0 ELSE json_array_length(%s) END)", sql, listOf(sql))
}
