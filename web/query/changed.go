package query

import (
	"context"
	"encoding/json"

	"github.com/pocketbase/dbx"
)

// Change is a record in its current state. First and Last are the sequences in the log of its first and its last
// change.
type Change struct {
	Record
	ID          string
	First, Last int64
	Removed     bool
}

// Changed returns the records that have changed after a sequence, in the order of their changes. It includes removed
// records. It returns only records that match the rule and the query's filter, and only those in ids unless ids is nil.
// Errors are Invalid, ErrSuperusers, or errors of the database.
func Changed(ctx context.Context, db dbx.Builder, cat Catalogue, c Collection, req Request,
	rule *string, q Query, ids []string, since int64, limit int) ([]Change, error) {
	if rule == nil && !req.Superuser {
		return nil, ErrSuperusers
	}
	var found []Record
	err := within(ctx, queryTimeout, func(ctx context.Context) (err error) {
		query := snapshotQuery{ctx: ctx, db: db, statement: newStatement(cat, req), c: c, maxBytes: q.maxBytes()}
		query.Tombstones = true
		if ids == nil {
			query.driver = "(SELECT id FROM " + c.Table + " WHERE last_seq > " + query.Bind(since) + ") AS k_ CROSS JOIN " +
				c.Table + " AS t ON t.id = k_.id"
		} else {
			list, err := json.Marshal(ids)
			if err != nil {
				return err
			}
			query.driver = "json_each(" + query.Bind(string(list)) + ") AS k_ CROSS JOIN " + c.Table + " AS t ON " +
				c.idColumn("t") + " = k_.value"
			query.where = append(query.where, "t.last_seq > "+query.Bind(since))
		}
		if err := query.conditions(rule, q.Filter); err != nil {
			return err
		}
		found, err = query.read(q, order{by: "t.last_seq, t.first_seq", limit: limit})
		return err
	})
	if err != nil {
		return nil, describeError("read changes of", c, err)
	}
	changes := make([]Change, len(found))
	for i, r := range found {
		changes[i] = Change{Record: r, ID: r.ID(), First: r.first, Last: r.last, Removed: r.removed}
	}
	return changes, nil
}
