package projections

import (
	"context"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// Spending is what assistant messages cost, in US dollars, and the tokens they took: input, output and reasoning. What
// a provider read from its cache or wrote to it counts in the cost alone. The cost of a message counts once, in the
// chat where it was written, also after the message or the chat was removed.
type Spending struct {
	Cost   float64 `db:"cost" json:"cost" about:"In US dollars."`
	Tokens int64   `db:"tokens" json:"tokens"`
}

// SpendingSpan selects the messages whose spending is added up. An empty field selects all.
type SpendingSpan struct {
	Chat    string // its subagents and delegates included
	User    string // who owns the chats now
	Project string // of the chats
	Day     string // 2006-01-02, in UTC: messages that began then
}

// Spending returns the spending of a span. It includes removed messages and deleted chats.
func (m *Model) Spending(ctx context.Context, in SpendingSpan) (Spending, error) {
	from := "usage m WHERE NOT removed" // a few rows for each chat
	if in.Day != "" {
		from = "messages m WHERE role='assistant' AND NOT copied"
	}
	query := "SELECT coalesce(sum(cost), 0) AS cost, coalesce(sum(tokens_input + tokens_output + tokens_reasoning), 0) AS tokens FROM " + from
	for _, narrow := range []struct{ by, condition string }{
		{in.Chat, " AND (chat={:chat} OR chat IN (SELECT id FROM chats WHERE root={:chat}))"},
		{in.User, " AND (SELECT user FROM chats WHERE id=m.chat)={:user}"},
		{in.Project, " AND (SELECT project FROM chats WHERE id=m.chat)={:project}"},
		{in.Day, " AND created >= {:day} AND created < {:day} || '~'"},
	} {
		if narrow.by != "" {
			query += narrow.condition
		}
	}
	s, _, err := store.First[Spending](ctx, m.Model, "spending", query,
		dbx.Params{"chat": in.Chat, "user": in.User, "project": in.Project, "day": in.Day})
	return s, err
}

// Grouping says what spending is added up by.
type Grouping string

// The groupings, as SQL over messages m.
const (
	PerDay   Grouping = "substr(m.created, 1, 10)" // 2006-01-02, in UTC
	PerModel Grouping = "m.provider||'/'||m.model"
	// "" for none
	PerPerson Grouping = "coalesce((SELECT u.email FROM chats c JOIN users u ON u.id=c.user WHERE c.id=m.chat), '')"
)

// SpendingShare is what one of a grouping spent.
type SpendingShare struct {
	Name string `db:"name" json:"name"`
	Spending
}

// SpendingShares returns what was spent since a day, by name of the grouping.
func SpendingShares(ctx context.Context, db dbx.Builder, since string, by Grouping) (all []SpendingShare, err error) {
	err = store.All(db.NewQuery(`SELECT `+string(by)+` AS name, sum(m.cost) AS cost, sum(m.tokens_input + m.tokens_output + m.tokens_reasoning) AS tokens
		FROM messages m WHERE m.role='assistant' AND NOT m.copied AND m.created >= {:since} GROUP BY 1 ORDER BY 1`).
		WithContext(ctx).Bind(dbx.Params{"since": since}), &all)
	if err != nil {
		return nil, fmt.Errorf("read spending: %w", err)
	}
	return all, nil
}
