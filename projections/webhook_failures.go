package projections

import (
	"context"
	"fmt"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// WebhookFailure is an event that a webhook target did not accept.
type WebhookFailure struct {
	store.Record
	Target   string `db:"target" json:"target"`     // record of the collection webhook_targets
	Event    int64  `db:"event" json:"event"`       // its sequence
	Type     string `db:"type" json:"type"`         // of the event
	Attempts int64  `db:"attempts" json:"attempts"` // that failed
	Reason   string `db:"reason" json:"reason"`
	Position int64  `db:"position" json:"position"` // sequence of the event that recorded the failure
}

// updateWebhookFailures applies an event about a webhook target. An event that is delivered after all is no longer a
// failure.
func updateWebhookFailures(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.WebhookFailed:
		f, _ := t.failures.Get(webhookFailureID(e, b.Event))
		if f.Removed { // it was delivered before
			f.Record = store.Record{ID: f.ID, Updated: f.Updated}
		}
		f.Target, f.Event, f.Type, f.Attempts = e.Subject.ID, int64(b.Event), b.Type, int64(b.Attempts)
		f.Reason, f.Position = b.Reason, int64(e.Seq)
		t.failures.Put(f)
	case events.WebhookDelivered:
		if f, found := t.failures.Get(webhookFailureID(e, b.Event)); found && !f.Removed {
			f.Removed = true
			t.failures.Put(f)
		}
	}
	return nil
}

func webhookFailureID(e events.Event, seq uint64) string {
	return events.ChannelID(e.Subject.ID, fmt.Sprint(seq))
}

// NamedWebhookFailure is a failure with the name of its target.
type NamedWebhookFailure struct {
	WebhookFailure
	Name string `db:"name" json:"name"`
}

// WebhookFailures returns the newest failures of the targets that exist, the newest first.
func (m *Model) WebhookFailures(ctx context.Context, limit int) ([]NamedWebhookFailure, error) {
	return store.List[NamedWebhookFailure](ctx, m.Model, "failures of webhooks", `SELECT f.*, c.fields->>'$.name' AS name
		FROM webhook_failures f JOIN config c ON c.id='webhook_targets/'||f.target AND NOT c.removed
		WHERE NOT f.removed ORDER BY f.position DESC LIMIT {:limit}`, dbx.Params{"limit": limit})
}
