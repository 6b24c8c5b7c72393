package spending

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Usage is what a chat, its subagents included, spent on a model. Tokens are counts, cost is in the provider's currency.
// It is a view of messages, so feeds do not report it: it changes with the messages of its chat.
type Usage struct {
	store.Record             // the id is chat.provider.model
	Chat             string  `db:"chat" json:"chat"`
	Provider         string  `db:"provider" json:"provider"`
	Model            string  `db:"model" json:"model"`
	Messages         int64   `db:"messages" json:"messages"`
	Cost             float64 `db:"cost" json:"cost"`
	TokensInput      int64   `db:"tokens_input" json:"tokens_input"`
	TokensOutput     int64   `db:"tokens_output" json:"tokens_output"`
	TokensReasoning  int64   `db:"tokens_reasoning" json:"tokens_reasoning"`
	TokensCacheRead  int64   `db:"tokens_cache_read" json:"tokens_cache_read"`
	TokensCacheWrite int64   `db:"tokens_cache_write" json:"tokens_cache_write"`
}

// ByModel lists what a chat spent.
func ByModel(ctx context.Context, m *projections.Model, chat string) ([]Usage, error) {
	return store.List[Usage](ctx, m.Model, "usage of "+chat, "SELECT * FROM usage WHERE chat={:chat} ORDER BY provider, model", dbx.Params{"chat": chat})
}
