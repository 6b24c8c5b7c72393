package timeline

import (
	"context"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Runs returns the executions of a chat in order.
func Runs(ctx context.Context, db dbx.Builder, chat string) (runs []projections.ShownExecution, err error) {
	err = list(ctx, db, &runs, "executions of "+chat, projections.SelectExecutions+"x.chat={:chat} ORDER BY x.position",
		dbx.Params{"chat": chat})
	return runs, err
}

// Run returns an execution, and one without an id if there is none.
func Run(ctx context.Context, db dbx.Builder, id string) (projections.ShownExecution, error) {
	return first[projections.ShownExecution](ctx, db, "execution "+id,
		projections.SelectExecutions+"x.id={:id}", dbx.Params{"id": id})
}

// LatestRuns returns the last n executions of a chat below a position, or of all if before is 0, oldest first. It also
// reports whether there are earlier ones.
func LatestRuns(ctx context.Context, db dbx.Builder, chat string, before int64,
	n int) (all []projections.ShownExecution, earlier bool, err error) {
	err = list(ctx, db, &all, "executions of "+chat, projections.SelectExecutions+`x.chat={:chat} AND NOT x.removed AND ({:before}=0 OR x.position<{:before})
		ORDER BY x.position DESC LIMIT {:n}`, dbx.Params{"chat": chat, "before": before, "n": n + 1})
	if len(all) > n {
		all, earlier = all[:n], true
	}
	slices.Reverse(all)
	return all, earlier, err
}

// ChangedRuns returns the executions of a chat from a position on that changed after a sequence, oldest first.
func ChangedRuns(ctx context.Context, db dbx.Builder, chat string, from int64,
	after uint64) (all []projections.ShownExecution, err error) {
	err = list(ctx, db, &all, "executions of "+chat, projections.SelectExecutions+`x.chat={:chat} AND NOT x.removed AND x.position>={:from} AND x.last_seq>{:after}
		ORDER BY x.position`, dbx.Params{"chat": chat, "from": from, "after": after})
	return all, err
}

// RunningSince returns the time at which the oldest execution of a chat that runs began, a person's shell left out, ""
// if none does.
func RunningSince(ctx context.Context, db dbx.Builder, chat string) (string, error) {
	row, err := first[struct{ Started string }](ctx, db, "executions of "+chat, `SELECT coalesce(min(started), '') AS started FROM executions
		WHERE chat={:chat} AND status='executing' AND NOT terminal AND NOT removed`, dbx.Params{"chat": chat})
	return row.Started, err
}

// PermissionRow returns a permission request by OpenCode's id or by that of its row, and one without an id if there is
// none.
func PermissionRow(ctx context.Context, db dbx.Builder, id string) (projections.Permission, error) {
	return first[projections.Permission](ctx, db, "request "+id, "SELECT * FROM permissions WHERE id IN ({:id}, {:row})",
		dbx.Params{"id": id, "row": store.RecordID(id)})
}

// Submitted returns the sequence of the event that submitted a message, 0 if there is none.
func Submitted(ctx context.Context, db dbx.Builder, message string) (uint64, error) {
	row, err := first[struct {
		First uint64 `db:"first_seq"`
	}](ctx, db, "message "+message, "SELECT first_seq FROM messages WHERE id={:id}", dbx.Params{"id": message})
	return row.First, err
}
