package projections

import (
	"context"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

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
