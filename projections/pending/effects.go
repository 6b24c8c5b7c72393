package pending

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// openEffects leaves out what was carried out before its end was recorded in the log: a later message of ours has been sent, which waits
// for that.
const openEffects = `SELECT e.* FROM effects e JOIN chats c ON c.id=e.chat WHERE e.state='open' AND NOT EXISTS (SELECT 1 FROM messages m
	WHERE m.chat=coalesce(nullif(e.into_chat,''), e.chat) AND m.position>e.position AND m.engine_parts NOT IN ('', '[]'))`

// Effects lists the aborts, reverts and forks that an engine has not carried out, in log order.
func Effects(ctx context.Context, m *projections.Model, engine string) ([]projections.Effect, error) {
	return store.List[projections.Effect](ctx, m.Model, "open effects", openEffects+" AND c.engine={:engine} ORDER BY e.position", dbx.Params{"engine": engine})
}

// Aborting reports whether a turn of a chat is to be aborted.
func Aborting(ctx context.Context, m *projections.Model, chat string) (bool, error) {
	_, found, err := store.First[projections.Effect](ctx, m.Model, "open aborts", openEffects+" AND e.chat={:chat} AND e.kind='abort'", dbx.Params{"chat": chat})
	return found, err
}
