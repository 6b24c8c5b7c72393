package projections

import (
	"context"
	"fmt"

	"github.com/pocketbase/dbx"
)

// list gives all rows of a query; what names it in an error.
func list[R any](ctx context.Context, m *Model, what, query string, params dbx.Params) ([]R, error) {
	m.use.RLock()
	defer m.use.RUnlock()
	rows := []R{}
	err := m.current.readers.NewQuery(query).WithContext(ctx).Bind(params).All(&rows)
	if err == nil {
		err = ctx.Err() // a query that was cut short may say nothing and give less
	}
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", what, err)
	}
	return rows, nil
}

// first gives the first row of a query and whether there is one.
func first[R any](ctx context.Context, m *Model, what, query string, params dbx.Params) (R, bool, error) {
	rows, err := list[R](ctx, m, what, query, params)
	if err != nil || len(rows) == 0 {
		return *new(R), false, err
	}
	return rows[0], true, nil
}

// narrowed gives the condition of a list that may be of one chat, of one status, of both or of all.
func narrowed(chat, status string) string {
	switch {
	case chat != "" && status != "":
		return " WHERE chat={:chat} AND status={:status}"
	case chat != "":
		return " WHERE chat={:chat}"
	case status != "":
		return " WHERE status={:status}"
	}
	return ""
}

// DeadLetters counts the events that could not be applied.
func (m *Model) DeadLetters(ctx context.Context) (int, error) {
	rows, err := list[struct{ N int }](ctx, m, "dead letters", "SELECT count(*) AS n FROM dead_letters", nil)
	if err != nil {
		return 0, err
	}
	return rows[0].N, nil
}
