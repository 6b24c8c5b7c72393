package timeline

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
)

const selectRuns = "SELECT x.*, coalesce(c.command, '') AS text FROM executions x LEFT JOIN commands c ON c.id=x.command WHERE "

// Runs returns the executions of a chat in order.
func Runs(ctx context.Context, db dbx.Builder, chat string) (runs []projections.Run, err error) {
	err = list(ctx, db, &runs, "executions of "+chat, selectRuns+"x.chat={:chat} ORDER BY x.position", dbx.Params{"chat": chat})
	return runs, err
}

// Run returns an execution, and one without an id if there is none.
func Run(ctx context.Context, db dbx.Builder, id string) (projections.Run, error) {
	return first[projections.Run](ctx, db, "execution "+id, selectRuns+"x.id={:id}", dbx.Params{"id": id})
}

// PermissionRow returns a permission request by OpenCode's id or by that of its row, and one without an id if there is none.
func PermissionRow(ctx context.Context, db dbx.Builder, id string) (projections.Permission, error) {
	return first[projections.Permission](ctx, db, "request "+id, "SELECT * FROM permissions WHERE id IN ({:id}, {:row})",
		dbx.Params{"id": id, "row": projections.RecordID(id)})
}

// Submitted returns the sequence of the event that submitted a message, 0 if there is none.
func Submitted(ctx context.Context, db dbx.Builder, message string) (uint64, error) {
	row, err := first[struct {
		Position uint64 `db:"position"`
	}](ctx, db, "message "+message, "SELECT position FROM messages WHERE id={:id}", dbx.Params{"id": message})
	return row.Position, err
}
