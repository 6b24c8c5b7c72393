package pending

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Effects lists the aborts, reverts, forks and omissions that an engine has not carried out, in log order.
func Effects(ctx context.Context, m *projections.Model, engine string) ([]projections.Effect, error) {
	return store.List[projections.Effect](ctx, m.Model, "open effects",
		"SELECT e.* FROM effects e JOIN chats c ON c.id=e.chat WHERE e.state='open' AND c.engine={:engine} ORDER BY e.position", dbx.Params{"engine": engine})
}

// Aborting reports whether an abort of a chat is open.
func Aborting(ctx context.Context, m *projections.Model, chat string) (bool, error) {
	_, found, err := store.First[projections.Effect](ctx, m.Model, "open aborts",
		"SELECT * FROM effects WHERE state='open' AND chat={:chat} AND kind='abort'", dbx.Params{"chat": chat})
	return found, err
}
