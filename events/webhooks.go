package events

// Webhooks that PocketCoder calls: each event of a subscribed type is posted to a URL. The events are about the record
// of the target in the collection webhook_targets.

// WebhookDelivered means that the target has accepted the event with a sequence. Earlier events were accepted or are
// not sent any more.
type WebhookDelivered struct {
	Event    uint64 `json:"event"` // its sequence
	Attempts int    `json:"attempts"`
}

// WebhookFailed means that the target did not accept the event, which is not sent again.
type WebhookFailed struct {
	Event    uint64 `json:"event"`
	Type     string `json:"type"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
}

// WebhookReplayed means that the target gets the events from a sequence on again.
type WebhookReplayed struct {
	From uint64 `json:"from"`
}

func (WebhookDelivered) Kind() string { return "webhook.delivered" }
func (WebhookFailed) Kind() string    { return "webhook.failed" }
func (WebhookReplayed) Kind() string  { return "webhook.replayed" }

// WebhookActor is webhook:<id>, the actor of the chats and messages of a webhook.
func WebhookActor(id string) string { return "webhook:" + id }
