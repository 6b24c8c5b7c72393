package outgoing

import (
	"context"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Failure is an event that a webhook target did not accept.
type Failure struct {
	store.Record
	Target   string `db:"target" json:"target"`     // record of the collection webhook_targets
	Event    int64  `db:"event" json:"event"`       // its sequence
	Type     string `db:"type" json:"type"`         // of the event
	Attempts int64  `db:"attempts" json:"attempts"` // that failed
	Reason   string `db:"reason" json:"reason"`
	Position int64  `db:"position" json:"position"` // sequence of the event that recorded the failure
}

// UpdateFailures applies an event about a webhook target. An event that is delivered after all is no longer a failure.
func UpdateFailures(t *store.Table[Failure], e events.Event, body any) {
	switch b := body.(type) {
	case events.WebhookFailed:
		f, _ := t.Get(failureID(e, b.Event))
		if f.Removed { // it was delivered before
			f.Record = store.Record{ID: f.ID, Updated: f.Updated}
		}
		f.Target, f.Event, f.Type, f.Attempts = e.Subject.ID, int64(b.Event), b.Type, int64(b.Attempts)
		f.Reason, f.Position = b.Reason, int64(e.Seq)
		t.Put(f)
	case events.WebhookDelivered:
		if f, found := t.Get(failureID(e, b.Event)); found && !f.Removed {
			f.Removed = true
			t.Put(f)
		}
	}
}

func failureID(e events.Event, seq uint64) string {
	return events.ChannelID(e.Subject.ID, fmt.Sprint(seq))
}

// NamedFailure is a failure with the name of its target.
type NamedFailure struct {
	Failure
	Name string `db:"name" json:"name"`
}

// ListFailures returns the newest failures of the targets that exist, the newest first.
func ListFailures(ctx context.Context, m *store.Model, limit int) ([]NamedFailure, error) {
	return store.List[NamedFailure](ctx, m, "failures of webhooks", `SELECT f.*, c.fields->>'$.name' AS name
		FROM webhook_failures f JOIN config c ON c.id='webhook_targets/'||f.target AND NOT c.removed
		WHERE NOT f.removed ORDER BY f.position DESC LIMIT {:limit}`, dbx.Params{"limit": limit})
}
