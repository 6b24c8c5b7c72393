package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
)

// Usage is what a chat, its subagents included, spent on a model. Tokens are counts, cost is in the provider's currency.
type Usage struct {
	Record                   // the id is chat.provider.model
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

type usage struct{}

func (usage) Name() string        { return "usage" }
func (usage) Schema() string      { return schema("usage") }
func (usage) Scope() events.Scope { return events.ScopeChat }

// Apply has nothing to do: usage is a view over messages.
func (usage) Apply(*Tx, events.Event, any) error { return nil }

// Usage lists what a chat spent, by model.
func (m *Model) Usage(ctx context.Context, chat string) ([]Usage, error) {
	return list[Usage](ctx, m, "usage of "+chat, "SELECT * FROM usage WHERE chat={:chat} ORDER BY provider, model", dbx.Params{"chat": chat})
}
