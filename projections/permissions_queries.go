package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Permissions lists requests in the order in which they were made. An empty chat or status selects all.
func (m *Model) Permissions(ctx context.Context, chat, status string) ([]Permission, error) {
	by := dbx.Params{"chat": chat, "status": status}
	where := store.Narrowed(by)
	if status == events.Draft { // a parameter would not choose the index of the few requests that wait
		where += " AND status='draft'"
	}
	return store.List[Permission](ctx, m.Model, "permissions", "SELECT * FROM permissions"+where+" ORDER BY asked_seq", by)
}

// Permission returns a request by OpenCode's id (per_…), and whether there is one.
func (m *Model) Permission(ctx context.Context, enginePermission string) (Permission, bool, error) {
	return store.First[Permission](ctx, m.Model, "permission "+enginePermission,
		"SELECT * FROM permissions WHERE id={:id}", dbx.Params{"id": store.RecordID(enginePermission)})
}

// FindPermission returns a request by OpenCode's id or by its record id, and whether there is one.
func (m *Model) FindPermission(ctx context.Context, id string) (Permission, bool, error) {
	return store.First[Permission](ctx, m.Model, "permission "+id,
		"SELECT * FROM permissions WHERE id IN ({:id},{:record}) ORDER BY id={:id} DESC LIMIT 1",
		dbx.Params{"id": id, "record": store.RecordID(id)})
}

// PermissionIn returns a request of a chat by the id that events use, and whether there is one. That is OpenCode's id,
// or the record id of a request over the API.
func (m *Model) PermissionIn(ctx context.Context, chat, permission string) (Permission, bool, error) {
	return store.First[Permission](ctx, m.Model, "permission "+permission,
		"SELECT * FROM permissions WHERE id IN ({:id}, {:own}) AND ai_engine_permission_id={:id} AND chat={:chat}",
		dbx.Params{"id": permission, "own": store.RecordID(permission), "chat": chat})
}

// DecisionsDone returns a sequence up to which nothing is left to do about the decisions on requests of a type. Only
// the sandbox records what it has carried out, so every decision on a request of another type counts as open.
func (m *Model) DecisionsDone(ctx context.Context, typ string) (through uint64, err error) {
	through = m.Seq() // first: the rows include each decision up to here
	open, _, err := store.First[struct{ First int64 }](ctx, m.Model, "open decisions",
		`SELECT coalesce(min(decided_seq), 0) AS first FROM permissions
			WHERE permission={:type} AND decided_seq > 0 AND NOT applied AND failure=''`, dbx.Params{"type": typ})
	if open.First > 0 {
		through = min(through, uint64(open.First)-1)
	}
	return through, err
}
