package timeline

import (
	"context"
	"fmt"

	"github.com/pocketbase/dbx"
)

func RequestEntry(ctx context.Context, db dbx.Builder, id string) (Entry, error) {
	var rows []Request
	if err := list(ctx, db, &rows, "request "+id, selectRequests+"p.id={:id}", dbx.Params{"id": id}); err != nil {
		return Entry{}, err
	}
	if len(rows) == 0 {
		return Entry{}, fmt.Errorf("read request %s: no such row", id)
	}
	return rows[0].entry(), nil
}
