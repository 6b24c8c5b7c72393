package projections

import (
	"context"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
)

// Spending is what assistant messages cost, in US dollars, and the tokens they took: input, output and
// reasoning. What a provider read from its cache or wrote to it counts in the cost alone.
type Spending struct {
	Cost   float64 `db:"cost" json:"cost"`
	Tokens int64   `db:"tokens" json:"tokens"`
}

// SpendingSpan selects messages. An empty field selects all.
type SpendingSpan struct {
	Chat string // its subagents and workers included
	User string // who owns the chats now
	Day  string // 2006-01-02, in UTC: messages that began then
}

// SpendingOf returns the spending of a span. It includes removed messages and deleted chats.
func (m *Model) SpendingOf(ctx context.Context, in SpendingSpan) (Spending, error) {
	from := "usage m WHERE NOT removed" // a few rows for each chat
	if in.Day != "" {
		from = "messages m WHERE role='assistant' AND NOT copied"
	}
	query := "SELECT coalesce(sum(cost), 0) AS cost, coalesce(sum(tokens_input + tokens_output + tokens_reasoning), 0) AS tokens FROM " + from
	for _, narrow := range []struct{ by, condition string }{
		{in.Chat, " AND (chat={:chat} OR chat IN (SELECT id FROM chats WHERE root={:chat}))"},
		{in.User, " AND (SELECT user FROM chats WHERE id=m.chat)={:user}"},
		{in.Day, " AND created >= {:day} AND created < {:day} || '~'"},
	} {
		if narrow.by != "" {
			query += narrow.condition
		}
	}
	s, _, err := store.First[Spending](ctx, m.Model, "spending", query,
		dbx.Params{"chat": in.Chat, "user": in.User, "day": in.Day})
	return s, err
}
