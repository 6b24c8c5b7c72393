package query

import (
	"fmt"
	"strings"

	"github.com/ganigeorgiev/fexpr"
)

// scope compiles expressions over one row. A filter that names a relation twice means the same related record, so a
// scope follows each path once. It joins paths that lead to at most one record to the row, and searches the others in
// an EXISTS.
type scope struct {
	*statement
	base  Collection
	alias string
	// trusted is for rules. Without it, a relation leads only to records that the client may list.
	trusted     bool
	parameter   string // named in errors
	joins       *joins
	expressions int
	plain       []string // conditions without a relation to many
	inner       []string // conditions with such a relation
}

// joins are the related records that conditions read.
type joins struct {
	one, many []string // LEFT JOIN …
	places    map[string]joinedRow
}

// joinedRow is a row that a path has reached.
type joinedRow struct {
	collection Collection
	alias      string
	many       bool // there may be several such rows
	all        bool // all of them must match
}

func newJoins() *joins { return &joins{places: map[string]joinedRow{}} }

func (j *joins) sql() string { return strings.Join(j.one, "") + strings.Join(j.many, "") }

func (s *statement) scope(c Collection, alias, parameter string) *scope {
	return &scope{statement: s, base: c, alias: alias, parameter: parameter, trusted: parameter == "rule",
		joins: newJoins()}
}

func (s *scope) invalid(code, format string, args ...any) Invalid {
	return newInvalid(s.parameter, code, format, args...)
}

// unrestricted reports whether the scope may read all records.
func (s *scope) unrestricted() bool { return s.trusted || s.Req.Superuser }

// add compiles an expression, which is added with AND.
func (s *scope) add(text string) error {
	groups, err := s.parse(text)
	if err != nil {
		return err
	}
	apart := true // conditions joined by a top-level && are independent
	for i, g := range groups {
		apart = apart && (i == 0 || g.Join == fexpr.JoinAnd)
	}
	if !apart {
		groups = []fexpr.ExprGroup{{Item: groups, Join: fexpr.JoinAnd}}
	}
	for _, g := range groups {
		sql, many, err := s.group(g, 0)
		if err != nil {
			return err
		}
		switch {
		case sql == "1":
		case many:
			s.inner = append(s.inner, sql)
		default:
			s.plain = append(s.plain, sql)
		}
	}
	return nil
}

// Where returns the joins and conditions for a statement over the row.
func (s *scope) Where() (from string, conditions []string) {
	conditions = s.plain
	if len(s.plain)+len(s.inner) == 0 {
		return "", nil
	}
	if len(s.inner) > 0 {
		conditions = append(conditions, "EXISTS (SELECT 1 FROM (SELECT 1)"+strings.Join(s.joins.many, "")+" WHERE "+
			strings.Join(s.inner, " AND ")+")")
	}
	return strings.Join(s.joins.one, ""), conditions
}

// selfContained returns the conditions as one that needs no joins in the surrounding statement. It is empty if there
// are none.
func (s *scope) selfContained() string {
	from, conditions := s.Where()
	sql := strings.Join(conditions, " AND ")
	if from != "" {
		return "EXISTS (SELECT 1 FROM (SELECT 1)" + from + " WHERE " + sql + ")"
	}
	return sql
}

// Filter compiles a client's filter over the row.
func (s *statement) Filter(c Collection, alias, filter string) (*scope, error) {
	sc := s.scope(c, alias, "filter")
	return sc, sc.add(filter)
}

// Rule compiles a rule over the row. The caller must handle nil rules and superusers.
func (s *statement) Rule(c Collection, alias, rule string) (*scope, error) {
	sc := s.scope(c, alias, "rule")
	if rule == "" {
		return sc, nil
	}
	if err := sc.add(rule); err != nil {
		return nil, fmt.Errorf("rule of %s %q: %v", c.Name, rule, err) // the client did not cause the error
	}
	return sc, nil
}

// join joins the rows of a collection for which on is true, under the name of the path that leads there.
func (s *scope) join(j *joins, path string, from joinedRow, to Collection, many, all bool,
	on func(alias string) string) (joinedRow, error) {
	if p, ok := j.places[path]; ok {
		return p, nil
	}
	p := joinedRow{collection: to, alias: s.statement.alias(), many: from.many || many, all: from.all || all}
	conditions := to.conditions(p.alias, s.Tombstones)
	if on != nil {
		conditions = append([]string{on(p.alias)}, conditions...)
	}
	if !s.unrestricted() {
		if to.List == nil {
			return joinedRow{}, s.invalid("not_allowed", "only superusers can read %s", to.Name)
		}
		guard, err := s.statement.Rule(to, p.alias, *to.List)
		if err != nil {
			return joinedRow{}, err
		}
		if condition := guard.selfContained(); condition != "" {
			conditions = append(conditions, condition)
		}
	}
	if len(conditions) == 0 {
		conditions = []string{"1"}
	}
	return p, s.addJoin(j, path, p, " LEFT JOIN "+to.Table+" AS "+p.alias+" ON "+strings.Join(conditions, " AND "))
}

// joinEach joins the values of a JSON list.
func (s *scope) joinEach(j *joins, path string, from joinedRow, all bool, list string) (joinedRow, error) {
	if p, ok := j.places[path]; ok {
		return p, nil
	}
	p := joinedRow{alias: s.statement.alias(), many: true, all: from.all || all}
	return p, s.addJoin(j, path, p, " LEFT JOIN json_each("+list+") AS "+p.alias)
}

func (s *scope) addJoin(j *joins, path string, p joinedRow, sql string) error {
	if p.many {
		j.many = append(j.many, sql)
	} else {
		j.one = append(j.one, sql)
	}
	j.places[path] = p
	if len(j.one)+len(j.many) > maxJoins {
		return s.invalid("too_many_relations", "it follows more than %d relations", maxJoins)
	}
	if len(j.many) > maxMany && !s.trusted {
		return s.invalid("too_many_relations", "it follows more than %d relations to many records", maxMany)
	}
	return nil
}

// Order compiles a sort. Equal records are in the order of their creation, so that pages neither repeat nor skip a
// record.
func (s *statement) Order(c Collection, sort string) (from, by string, err error) {
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
	terms = append(terms, "t.first_seq"+direction, c.idColumn("t")+direction)
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

func (s *scope) sortTerm(name string) (string, error) {
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
