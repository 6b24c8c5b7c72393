package store

import (
	"context"
	"fmt"

	"github.com/pocketbase/dbx"
)

// List returns all rows of a query. what names the query in an error.
func List[R any](ctx context.Context, m *Model, what, query string, params dbx.Params) ([]R, error) {
	m.use.RLock()
	defer m.use.RUnlock()
	rows := []R{}
	err := m.current.readers.NewQuery(query).WithContext(ctx).Bind(params).All(&rows)
	if err == nil {
		err = ctx.Err() // an interrupted query may return fewer rows without an error
	}
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", what, err)
	}
	return rows, nil
}

// First returns the first row of a query, and whether there is one.
func First[R any](ctx context.Context, m *Model, what, query string, params dbx.Params) (R, bool, error) {
	rows, err := List[R](ctx, m, what, query, params)
	if err != nil || len(rows) == 0 {
		return *new(R), false, err
	}
	return rows[0], true, nil
}

// DeadLetters returns the number of events that could not be applied.
func (m *Model) DeadLetters(ctx context.Context) (int, error) {
	rows, err := List[struct{ N int }](ctx, m, "dead letters", "SELECT count(*) AS n FROM dead_letters", nil)
	if err != nil {
		return 0, err
	}
	return rows[0].N, nil
}
