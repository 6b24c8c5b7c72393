package projections

import (
	"context"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
)

// UsageByModel lists what a chat spent.
func (m *Model) UsageByModel(ctx context.Context, chat string) ([]Usage, error) {
	return store.List[Usage](ctx, m.Model, "usage of "+chat,
		"SELECT * FROM usage WHERE chat={:chat} AND NOT removed ORDER BY provider, model", dbx.Params{"chat": chat})
}
