package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pocketbase/dbx"
)

// List returns all rows of a query. what names the query in an error. The fn of a View must not call List, which waits
// for a view of its own.
func List[R any](ctx context.Context, m *Model, what, query string, params dbx.Params) ([]R, error) {
	rows := []R{}
	err := m.View(ctx, func(db dbx.Builder, _ uint64) error {
		return All(db.NewQuery(query).WithContext(ctx).Bind(params), &rows)
	})
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", what, err)
	}
	return rows, nil
}

// All reads all rows of a query. It returns an error that ends the rows early, which the method All of dbx ignores
// (pocketbase/dbx v1.12.0, Rows.all).
func All[R any](q *dbx.Query, rows *[]R) error {
	found, err := q.Rows()
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var row R
		if err := found.ScanStruct(&row); err != nil {
			return err
		}
		*rows = append(*rows, row)
	}
	return found.Err()
}

// First returns the first row of a query, and whether there is one.
func First[R any](ctx context.Context, m *Model, what, query string, params dbx.Params) (R, bool, error) {
	rows, err := List[R](ctx, m, what, query, params)
	if err != nil || len(rows) == 0 {
		return *new(R), false, err
	}
	return rows[0], true, nil
}

// Narrowed returns the WHERE clause of a list that the values of columns narrow. An empty text does not narrow.
func Narrowed(by dbx.Params) string {
	conditions := []string{"1"}
	for _, column := range slices.Sorted(maps.Keys(by)) {
		if by[column] != "" {
			conditions = append(conditions, column+"={:"+column+"}")
		}
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}

// DeadLetters are the events that could not be read or applied.
type DeadLetters struct {
	Count  int          `json:"count"`
	Oldest []DeadLetter `json:"oldest"` // at most as many as the caller wants
}

// DeadLetter is an event that could not be read or applied.
type DeadLetter struct {
	Seq     uint64 `json:"seq"`
	Subject string `json:"subject"`
	Error   string `json:"error"`
}

// DeadLetters returns how many events could not be read or applied, and the oldest of them.
func (m *Model) DeadLetters(ctx context.Context, limit int) (letters DeadLetters, err error) {
	total, _, err := First[struct{ N int }](ctx, m, "dead letters", "SELECT count(*) AS n FROM dead_letters", nil)
	if err != nil {
		return letters, err
	}
	letters.Count = total.N
	letters.Oldest, err = List[DeadLetter](ctx, m, "dead letters",
		"SELECT seq, subject, error FROM dead_letters ORDER BY seq LIMIT {:limit}",
		dbx.Params{"limit": limit})
	return letters, err
}
