package filter

import (
	"strings"

	"pocketcoder/web/query/schema"
)

// Order compiles a sort. Equal records are in the order of their creation, so that pages neither repeat nor skip a
// record.
func (s *Statement) Order(c schema.Collection, sort string) (from, by string, err error) {
	sc := s.scope(c, "t", "sort")
	var names, terms []string
	if sort != "" {
		names = strings.Split(sort, ",")
	}
	if len(names) > maxSort {
		return "", "", sc.invalid("too_many_fields", "it has more than %d fields", maxSort)
	}
	direction := ""
	for _, name := range names {
		name, direction = parseDirection(name)
		term, err := sc.sortTerm(name)
		if err != nil {
			return "", "", err
		}
		terms = append(terms, term+direction)
	}
	terms = append(terms, "t.first_seq"+direction, c.IDColumn("t")+direction)
	return strings.Join(sc.joins.one, ""), strings.Join(terms, ", "), nil
}

// parseDirection splits -name and +name.
func parseDirection(name string) (rest, direction string) {
	name = strings.TrimSpace(name)
	if rest, ok := strings.CutPrefix(name, "-"); ok {
		return rest, " DESC"
	}
	return strings.TrimPrefix(name, "+"), ""
}

func (s *Scope) sortTerm(name string) (string, error) {
	switch {
	case len(name) > maxSortName:
		return "", s.invalid("too_long", "a field is %d bytes long, at most %d", len(name), maxSortName)
	case name == "":
		return "", s.invalid("unknown_field", "it names an empty field")
	case name == "@random":
		return "random()", nil
	case name == "@rowid":
		return "t.first_seq", nil
	case name[0] == '@':
		return "", s.invalid("unknown_field", "it cannot sort by %q", name)
	}
	o, err := s.path(name, s.joins)
	if err != nil || !o.many {
		return o.sql, err
	}
	apart := newJoins() // sorts by the smallest of several values
	if o, err = s.path(name, apart); err != nil {
		return "", err
	}
	return "(SELECT min(" + o.sql + ") FROM (SELECT 1)" + apart.sql() + ")", nil
}
