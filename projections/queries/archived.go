// Package queries holds queries of the read models that the log and the policy need.
//
// Promises: a query that a decision depends on first waits until the read model holds what is in the log.
//
// It must not know who asks.
package queries

import (
	"context"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Archived returns a query for the archived chats that are not deleted and have not changed since a time. The query
// returns when each of them has changed, by id.
func Archived(m *projections.Model) func(ctx context.Context, since time.Time) (map[string]string, error) {
	return func(ctx context.Context, since time.Time) (map[string]string, error) {
		chats, err := store.List[projections.Chat](ctx, m.Model, "chats",
			"SELECT * FROM chats WHERE archived AND NOT removed AND max(updated, last_active) < {:since}",
			dbx.Params{"since": since.UTC().Format(events.TimeFormat)})
		changed := map[string]string{}
		for _, c := range chats {
			changed[c.ID] = max(c.Updated, c.LastActive)
		}
		return changed, err
	}
}
