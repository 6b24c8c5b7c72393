package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// Usage is the cost of a chat and its subagents for one model. Feeds do not report it, because it changes with the
// messages of its chat.
type Usage struct {
	store.Record        // the id is chat.provider.model
	Chat         string `db:"chat" json:"chat"`
	Provider     string `db:"provider" json:"provider"`
	Model        string `db:"model" json:"model"`
	Messages     int64  `db:"messages" json:"messages"`
	Figures
}

// Figures are the cost of messages, in US dollars, and their tokens.
type Figures struct {
	Cost             float64 `db:"cost" json:"cost"`
	TokensInput      int64   `db:"tokens_input" json:"tokens_input"`
	TokensOutput     int64   `db:"tokens_output" json:"tokens_output"`
	TokensReasoning  int64   `db:"tokens_reasoning" json:"tokens_reasoning"`
	TokensCacheRead  int64   `db:"tokens_cache_read" json:"tokens_cache_read"`
	TokensCacheWrite int64   `db:"tokens_cache_write" json:"tokens_cache_write"`
}

func usageOf(chat, provider, model string, s Figures) Usage {
	return Usage{Record: store.Record{ID: chat + "." + provider + "." + model}, Chat: chat, Provider: provider,
		Model: model, Messages: 1, Figures: s}
}

// updateUsage replaces the old figures of one message by its new ones, so that a message counts once, with its latest
// figures. It adds the difference: an unchanged cost adds exactly 0, and so no rounding error. A zero Usage has no
// effect.
func updateUsage(t *store.Table[Usage], was, now Usage) {
	if was.ID != now.ID {
		addUsage(t, was, was, Usage{})
		was = Usage{}
	}
	addUsage(t, now, was, now)
}

// addUsage adds the difference of before and after to a row.
func addUsage(t *store.Table[Usage], row, before, after Usage) {
	if row.ID == "" {
		return
	}
	u, _ := t.Get(row.ID)
	u.Chat, u.Provider, u.Model = row.Chat, row.Provider, row.Model
	u.Messages += after.Messages - before.Messages
	u.Cost += after.Cost - before.Cost
	u.TokensInput += after.TokensInput - before.TokensInput
	u.TokensOutput += after.TokensOutput - before.TokensOutput
	u.TokensReasoning += after.TokensReasoning - before.TokensReasoning
	u.TokensCacheRead += after.TokensCacheRead - before.TokensCacheRead
	u.TokensCacheWrite += after.TokensCacheWrite - before.TokensCacheWrite
	if u.Removed = u.Messages == 0; u.Removed {
		u.Cost = 0 // without the rounding errors of the sum
	}
	t.Put(u)
}

// UsageByModel lists what a chat spent.
func (m *Model) UsageByModel(ctx context.Context, chat string) ([]Usage, error) {
	return store.List[Usage](ctx, m.Model, "usage of "+chat,
		"SELECT * FROM usage WHERE chat={:chat} AND NOT removed ORDER BY provider, model", dbx.Params{"chat": chat})
}
