package projections

import (
	"context"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
)

// PendingEffects lists the aborts, reverts, forks and omissions that an engine has not carried out, in log order.
func (m *Model) PendingEffects(ctx context.Context, engine string) ([]Effect, error) {
	return store.List[Effect](ctx, m.Model, "open effects",
		"SELECT e.* FROM effects e JOIN chats c ON c.id=e.chat WHERE e.state='open' AND c.engine={:engine} ORDER BY e.position", dbx.Params{"engine": engine})
}

// IsAborting reports whether an abort of a chat is open.
func (m *Model) IsAborting(ctx context.Context, chat string) (bool, error) {
	_, found, err := store.First[Effect](ctx, m.Model, "open aborts",
		"SELECT * FROM effects WHERE state='open' AND chat={:chat} AND kind='abort'", dbx.Params{"chat": chat})
	return found, err
}
