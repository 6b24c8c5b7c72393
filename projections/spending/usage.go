package spending

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// ByModel lists what a chat spent.
func ByModel(ctx context.Context, m *projections.Model, chat string) ([]projections.Usage, error) {
	return store.List[projections.Usage](ctx, m.Model, "usage of "+chat,
		"SELECT * FROM usage WHERE chat={:chat} AND NOT removed ORDER BY provider, model", dbx.Params{"chat": chat})
}
