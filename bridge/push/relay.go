package push

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
)

// Relay is an HTTP server that hands messages on to Firebase, whose credentials belong to who publishes the app. The operator
// chooses it, so it may be anywhere. The zero value is none.
type Relay struct {
	URL    string
	Secret string // sent as X-Relay-Secret
}

// relayClient goes where the operator says.
var relayClient = guarded(func(netip.Addr) error { return nil })

// sendRelay posts a message as the relay of the published app takes it. Firebase replaces by no id of ours, so that what is done
// with is not sent.
func (p *Push) sendRelay(ctx context.Context, d device, m message) error {
	if p.Relay.URL == "" {
		return permanent{reason: "there is no relay for fcm: see --push-relay"}
	}
	if m.done {
		return nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Relay.URL, bytes.NewReader(encoded(map[string]string{
		"token": d.token, "user_id": d.user, "service": serviceFCM, "title": m.Title, "message": m.Message, "type": m.Type, "chat": m.Chat,
		"permission": m.Permission, "id": m.id,
	})))
	if err != nil {
		return permanent{reason: "the relay's address is no URL"}
	}
	r.Header.Set("Content-Type", "application/json")
	if p.Relay.Secret != "" {
		r.Header.Set("X-Relay-Secret", p.Relay.Secret)
	}
	resp, err := relayClient.Do(r)
	err = judge(resp, err)
	if final := (permanent{}); errors.As(err, &final) && resp != nil && resp.StatusCode == http.StatusNotFound { // the relay is missing, not the device
		return permanent{reason: final.reason}
	}
	return err
}
