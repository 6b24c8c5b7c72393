package query

import (
	"slices"

	"pocketcoder/handlers/record"
)

// Field is one field of a collection. The fields id, created and updated are in every collection and need not be
// listed.
type Field struct {
	record.Field
	// SQL is an expression over the row t, which gives text, for a number or bool a number, for json JSON text (t.fields
	// -> '$.x', not ->>). Empty means the column of the same name. It is evaluated only for rows of a page, unless a
	// client filters by it.
	SQL string
}

// Collection is a named set of records of one shape.
type Collection struct {
	ID, Name, Alias string // ID is by default the name; Alias is a second name
	Type            string // base, auth or view
	Table           string // read as t; it has the columns created, updated, first_seq, last_seq and removed
	Key             string // SQL of the record's id over t, by default t.id
	Where           string // SQL condition over t that selects the collection's rows, may be empty
	Live            string // SQL condition over t that selects rows that have not been removed, may be empty
	Fields          []Field
	record.Access
}

// builtin are the fields every collection has.
var builtin = []Field{{Field: record.Field{Name: "id", Kind: record.Text}},
	{Field: record.Field{Name: "created", Kind: record.Autodate}},
	{Field: record.Field{Name: "updated", Kind: record.Autodate}}}

func isBuiltin(name string) bool { return name == "id" || name == "created" || name == "updated" }

func (c Collection) Field(name string) (Field, bool) {
	for _, fields := range [][]Field{c.Fields, builtin} {
		for i := range fields { // by index: a Field is large
			if fields[i].Name == name {
				return fields[i], true
			}
		}
	}
	return Field{}, false
}

// nameID is the ID, by default the name.
func (c Collection) nameID() string {
	if c.ID == "" {
		return c.Name
	}
	return c.ID
}

// allFields are the fields with those every collection has.
func (c Collection) allFields() []Field {
	list := slices.Clone(c.Fields)
	for _, f := range builtin {
		if !slices.ContainsFunc(c.Fields, func(own Field) bool { return own.Name == f.Name }) {
			list = append(list, f)
		}
	}
	return list
}

type Catalogue []Collection

// Get returns a collection by name, alias or id. If it is found by its alias, its Name is the alias.
func (c Catalogue) Get(nameOrID string) (Collection, bool) {
	if nameOrID == "" {
		return Collection{}, false
	}
	for _, found := range c {
		found.ID = found.nameID()
		switch nameOrID {
		case found.Name, found.ID:
			return found, true
		case found.Alias:
			found.Name = found.Alias
			return found, true
		}
	}
	return Collection{}, false
}
