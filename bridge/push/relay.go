package push

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"

	"pocketcoder/events"
)

// Relay is an HTTP server that forwards messages to Firebase with the credentials of the app's publisher. The operator
// chooses it, so it may have any address. The zero value is no relay.
type Relay struct {
	URL    string
	Secret string // sent as X-Relay-Secret
}

// relayClient dials any address.
var relayClient = guarded(func(netip.Addr) error { return nil })

// sendRelay posts a message to the relay. It sends no withdrawals, because Firebase cannot replace a message by our id.
func (s *Sender) sendRelay(ctx context.Context, d Device, m Message) error {
	if s.Relay.URL == "" {
		return permanentError{Reason: "there is no relay for fcm: see --push-relay"}
	}
	if m.Done {
		return nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Relay.URL,
		bytes.NewReader(events.MustEncode(map[string]string{
			"token": d.Token, "user_id": d.User, "service": fcm, "title": m.Title, "message": m.Message, "type": m.Type, "chat": m.Chat,
			"permission": m.Permission, "id": m.ID,
		})))
	if err != nil {
		return permanentError{Reason: "the relay's address is not a URL"}
	}
	r.Header.Set("Content-Type", "application/json")
	if s.Relay.Secret != "" {
		r.Header.Set("X-Relay-Secret", s.Relay.Secret)
	}
	resp, err := relayClient.Do(r)
	err = checkResponse(resp, err)
	// the relay is missing, not the device
	if final := (permanentError{}); errors.As(err, &final) && resp != nil && resp.StatusCode == http.StatusNotFound {
		return permanentError{Reason: final.Reason}
	}
	return err
}
