package query

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/handlers/record"
)

// Allowed reports whether a record exists, is not deleted, and matches a rule. A nil rule matches for superusers only.
func Allowed(ctx context.Context, db dbx.Builder, cat Catalogue, c Collection, id string, rule *string,
	req Request) (bool, error) {
	if rule == nil && !req.Superuser {
		return false, nil
	}
	q := snapshotQuery{ctx: ctx, db: db, statement: newStatement(cat, req), c: c}
	q.where = append(q.where, c.idColumn("t")+" = "+q.Bind(id))
	return q.matches(rule)
}

// AllowedNew reports whether a record that does not exist yet, with these field values, matches a rule.
func AllowedNew(ctx context.Context, db dbx.Builder, cat Catalogue, c Collection, values map[string]any,
	rule *string, req Request) (bool, error) {
	if rule == nil || req.Superuser {
		return req.Superuser, nil
	}
	q := snapshotQuery{ctx: ctx, db: db, statement: newStatement(cat, req), c: c}
	q.c.Key, q.c.Where, q.c.Live, q.c.Fields = `t."id"`, "", "", nil
	var columns []string
	for _, f := range c.allFields() {
		columns = append(columns, q.Bind(columnForm(f, values[f.Name], q.statement))+` AS "`+f.Name+`"`)
		f.SQL = ""
		q.c.Fields = append(q.c.Fields, f)
	}
	q.c.Table = "(SELECT " + strings.Join(columns, ", ") + ")"
	return q.matches(rule)
}

func (q *snapshotQuery) matches(rule *string) (bool, error) {
	err := q.conditions(rule, "")
	if err != nil {
		return false, err
	}
	var found bool
	if err := q.query("SELECT EXISTS (SELECT 1" + q.rows() + ")").Row(&found); err != nil {
		return false, describeError("evaluate a rule of", q.c, err)
	}
	return found, nil
}

// columnForm returns a value in the form in which its column holds it.
func columnForm(f Field, v any, s *statement) any {
	switch {
	case v == nil && f.Kind == record.Autodate:
		return events.FormatTime(s.Now)
	case f.Kind == record.JSON:
		text, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		return string(text)
	case v == nil && (f.Kind == record.Number || f.Kind == record.Bool):
		return 0
	case v == nil:
		return ""
	}
	return scalar(v)
}

// scalar returns a value that SQL can compare. Lists and objects become JSON text.
func scalar(v any) any {
	switch v.(type) {
	case nil, string, bool, float64, int, int64:
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return string(text)
}
