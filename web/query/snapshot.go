package query

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/pocketbase/dbx"
)

// snapshotQuery is one statement that reads rows of a collection as t.
type snapshotQuery struct {
	*statement
	ctx context.Context
	db  dbx.Builder
	c   Collection
	// the table that SQLite must read first, with t joined to it. If empty, SQLite chooses, and would begin with the
	// caller's chats
	driver   string
	from     string // joined to t
	where    []string
	maxBytes int    // limit of the records in bytes, 0 for none
	group    string // SQL; at most maxBack records may have the same value of it; empty for no limit
}

// order selects a part of the rows, and their order.
type order struct {
	// from is joined for the terms in by. by is empty to keep the order of the outer loop, and unused for rows in groups
	from, by      string
	limit, offset int
}

// conditions adds the conditions of the collection, of a rule and of a filter.
func (q *snapshotQuery) conditions(rule *string, filter string) error {
	q.where = append(q.where, q.c.conditions("t", q.Tombstones)...)
	if rule != nil && !q.Req.Superuser {
		sc, err := q.Rule(q.c, "t", *rule)
		if err != nil {
			return err
		}
		q.narrow(sc)
	}
	if filter == "" {
		return nil
	}
	sc, err := q.Filter(q.c, "t", filter)
	if err != nil {
		return err
	}
	q.narrow(sc)
	return nil
}

func (q *snapshotQuery) narrow(sc *scope) {
	from, conditions := sc.Where()
	q.from += from
	q.where = append(q.where, conditions...)
}

// rows returns the FROM and WHERE clauses of the statement.
func (q *snapshotQuery) rows() string {
	return q.joined("")
}

func (q *snapshotQuery) joined(from string) string {
	sql := " FROM " + cmp.Or(q.driver, q.c.Table+" AS t") + q.from + from
	if len(q.where) > 0 {
		sql += " WHERE " + strings.Join(q.where, " AND ")
	}
	return sql
}

func (q *snapshotQuery) count() (n int, err error) {
	err = q.query("SELECT count(*)" + q.rows()).Row(&n)
	return n, err
}

func (q *snapshotQuery) query(sql string) *dbx.Query {
	return q.db.NewQuery(sql).WithContext(q.ctx).Bind(q.Params)
}

// page returns the records of a page. SQLite evaluates a rule about the chat of a record by reading all records of the
// caller's chats, and then it sorts them. If there are many, most pages are among the first rows of the table, which
// an index has in the order of creation. If there are few, SQLite's way is fast.
func (q *snapshotQuery) page(wanted Query, o order) ([]Record, error) {
	sort := strings.TrimLeft(wanted.Sort, "+-")
	if q.from == "" || q.driver != "" || wanted.Filter != "" || sort != "" && sort != "created" {
		return q.read(wanted, o)
	}
	key := q.c.idColumn("t")
	first := *q
	first.driver = "(SELECT " + key + " AS k FROM " + q.c.Table + " AS t ORDER BY " + o.by + " LIMIT " +
		strconv.Itoa(maxFirst) + ") AS first_ CROSS JOIN " +
		q.c.Table + " AS t ON " + key + " = first_.k"
	// the outer loop has that order and ends after the page
	found, err := first.read(wanted, order{limit: o.limit, offset: o.offset})
	if err != nil || len(found) == o.limit {
		return found, err
	}
	return q.read(wanted, o)
}

// read returns the records in an order. It finds their keys first, so that SQLite reads fields and runs subqueries only
// for the rows of the page. The outer loop reads the page, which keeps the order.
func (q *snapshotQuery) read(wanted Query, o order) ([]Record, error) {
	fields, err := parseFields(wanted.Fields)
	if err != nil {
		return nil, err
	}
	expand, err := parseExpand(wanted.Expand)
	if err != nil {
		return nil, err
	}
	under, shown := fields.selected("expand")
	if !shown {
		expand = nil
	}
	found, err := q.scan(newShape(q.c, q.Req, fields, expand), o)
	if err != nil || len(expand) == 0 {
		return found, err
	}
	e := expander{ctx: q.ctx, db: q.db, cat: q.Cat, req: q.Req, remaining: maxExpanded, maxBytes: q.maxBytes}
	e.req.Now = q.Now
	if err := e.expand(q.c, pointers(found), expand, under); err != nil || q.maxBytes == 0 {
		return found, err
	}
	left := q.maxBytes // a related record is shown with each record that refers to it
	for i := range found {
		if left -= found[i].size(left); left < 0 {
			return nil, tooLarge()
		}
	}
	return found, nil
}

func (q *snapshotQuery) scan(shape *shape, o order) ([]Record, error) {
	sql := "SELECT " + shape.columns("t") + " FROM (" + q.keys(o) + ") AS page_ CROSS JOIN " + q.c.Table + " AS t ON " +
		q.c.idColumn("t") + " = page_.k"
	if q.c.Where != "" {
		sql += " AND (" + q.c.Where + ")"
	}
	rows, err := q.query(sql).Rows()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return shape.scan(rows.Rows, q.maxBytes)
}

func (q *snapshotQuery) keys(o order) string {
	key, by := q.c.idColumn("t"), o.by
	sql := "SELECT " + key + " AS k" + q.joined(o.from)
	if q.group != "" {
		place := "row_number() OVER (PARTITION BY " + q.group + " ORDER BY t.first_seq, " + key + ")"
		sql = "SELECT k FROM (SELECT " + key + " AS k, t.first_seq AS seq, " + place + " AS place" + q.rows() +
			") WHERE place <= " + strconv.Itoa(maxBack) + " GROUP BY k"
		by = "min(seq), k"
	}
	if by != "" {
		sql += " ORDER BY " + by
	}
	return sql + " LIMIT " + strconv.Itoa(o.limit) + " OFFSET " + strconv.Itoa(o.offset)
}
