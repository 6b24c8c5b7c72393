package projections

import (
	"context"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
)

// PendingRequest is a permission request with the directory and the engine of its session. OpenCode needs the directory in a
// reply.
type PendingRequest struct {
	Permission
	Directory string `db:"directory"`
	Engine    string `db:"engine"`
}

const selectPendingRequests = "SELECT p.*, coalesce(s.directory,'') AS directory, coalesce(s.engine,'') AS engine FROM permissions p LEFT JOIN sessions s ON s.id=p.session_id WHERE "

// PendingRequests lists the requests of OpenCode that wait for a decision, interrupted ones too, oldest first.
func (m *Model) PendingRequests(ctx context.Context) ([]PendingRequest, error) {
	return store.List[PendingRequest](ctx, m.Model, "pending asks", selectPendingRequests+
		"p.status='draft' AND NOT p.replied ORDER BY p.asked_seq", nil)
}

// DecidedRequests lists the requests that were decided and that OpenCode has not confirmed, in the order of the
// decisions.
func (m *Model) DecidedRequests(ctx context.Context) ([]PendingRequest, error) {
	return store.List[PendingRequest](ctx, m.Model, "decided asks", selectPendingRequests+
		"p.status IN ('authorized','denied') AND NOT p.replied ORDER BY p.decided_seq", nil)
}

// InterruptedTogether lists the ids of the authorized requests that OpenCode has forgotten and that came from the same
// answer as p, in the order of the decisions. p is one of them.
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
