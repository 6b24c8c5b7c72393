package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// Permissions lists asks in the order they were asked; an empty chat or status does not narrow.
func (m *Model) Permissions(ctx context.Context, chat, status string) ([]Permission, error) {
	return store.List[Permission](ctx, m.Model, "permissions", "SELECT * FROM permissions"+narrowed(chat, status)+" ORDER BY asked_seq", dbx.Params{"chat": chat, "status": status})
}

// Permission returns a request by OpenCode's id (per_…), and whether there is one.
func (m *Model) Permission(ctx context.Context, enginePermission string) (Permission, bool, error) {
	return store.First[Permission](ctx, m.Model, "permission "+enginePermission, "SELECT * FROM permissions WHERE id={:id}", dbx.Params{"id": RecordID(enginePermission)})
}

// FindPermission returns a request by OpenCode's id or by its record id, and whether there is one.
func (m *Model) FindPermission(ctx context.Context, id string) (Permission, bool, error) {
	return store.First[Permission](ctx, m.Model, "permission "+id, "SELECT * FROM permissions WHERE id IN ({:id},{:record}) ORDER BY id={:id} DESC LIMIT 1",
		dbx.Params{"id": id, "record": RecordID(id)})
}

// AskIn returns a request of a chat by the id that events use, and whether there is one. That is OpenCode's id, or the record id
// of a request over the API.
func (m *Model) AskIn(ctx context.Context, chat, permission string) (Permission, bool, error) {
	return store.First[Permission](ctx, m.Model, "permission "+permission, "SELECT * FROM permissions WHERE id IN ({:id}, {:own}) AND ai_engine_permission_id={:id} AND chat={:chat}",
		dbx.Params{"id": permission, "own": RecordID(permission), "chat": chat})
}

// Ask is a permission with where its session works, which OpenCode wants to know with a reply.
type Ask struct {
	Permission
	Directory string `db:"directory" json:"directory"`
	Engine    string `db:"engine" json:"engine"`
}

const selectAsks = "SELECT p.*, coalesce(s.directory,'') AS directory, coalesce(s.engine,'') AS engine FROM permissions p LEFT JOIN sessions s ON s.id=p.session_id WHERE "

// PendingAsks lists what OpenCode asked and waits for a decision, interrupted asks too, oldest first.
func (m *Model) PendingAsks(ctx context.Context) ([]Ask, error) {
	return store.List[Ask](ctx, m.Model, "pending asks", selectAsks+"p.status='draft' AND NOT p.replied ORDER BY p.asked_seq", nil)
}

// DecidedUnreplied lists what was decided here and OpenCode has not confirmed, in the order of the decisions.
func (m *Model) DecidedUnreplied(ctx context.Context) ([]Ask, error) {
	return store.List[Ask](ctx, m.Model, "decided asks", selectAsks+"p.status IN ('authorized','denied') AND NOT p.replied ORDER BY p.decided_seq", nil)
}

// InterruptedTogether lists the ids of the authorized requests that OpenCode has forgotten and that came from the same answer as
// p, in the order of the decisions. p is one of them.
func (m *Model) InterruptedTogether(ctx context.Context, p Permission) ([]string, error) {
	rows, err := store.List[struct {
		ID string `db:"ai_engine_permission_id"`
	}](ctx, m.Model, "requests of answer "+p.EngineMessage, `SELECT ai_engine_permission_id FROM permissions
		WHERE chat={:chat} AND session_id={:session} AND message_id={:message} AND status='authorized' AND interrupted ORDER BY decided_seq`,
		dbx.Params{"chat": p.Chat, "session": p.Session, "message": p.EngineMessage})
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids, err
}

// narrowed returns the condition of a list that may be narrowed to a chat, a status, or both.
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
