package queries

import (
	"context"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Archived returns the archived chats that are not deleted and have not changed since a time: when each has changed, by id.
func Archived(ctx context.Context, m *projections.Model, since time.Time) (changed map[string]string, err error) {
	chats, err := store.List[projections.Chat](ctx, m.Model, "chats",
		"SELECT * FROM chats WHERE archived AND NOT removed AND max(updated, last_active) < {:since}",
		dbx.Params{"since": since.UTC().Format(events.TimeFormat)})
	changed = map[string]string{}
	for _, c := range chats {
		changed[c.ID] = max(c.Updated, c.LastActive)
	}
	return changed, err
}
