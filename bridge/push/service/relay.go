package service

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"

	"pocketcoder/events"
)

// Relay is an HTTP server that hands messages on to Firebase, whose credentials belong to who publishes the app. The
// operator chooses it, so it may be anywhere. The zero value is none.
type Relay struct {
	URL    string
	Secret string // sent as X-Relay-Secret
}

// relayClient goes where the operator says.
var relayClient = guarded(func(netip.Addr) error { return nil })

// sendRelay posts a message as the relay of the published app takes it. Firebase replaces by no id of ours, so that
// what is done with is not sent.
func (s *Sender) sendRelay(ctx context.Context, d Device, m Message) error {
	if s.Relay.URL == "" {
		return PermanentError{Reason: "there is no relay for fcm: see --push-relay"}
	}
	if m.Done {
		return nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Relay.URL,
		bytes.NewReader(events.MustEncode(map[string]string{
			"token": d.Token, "user_id": d.User, "service": FCM, "title": m.Title, "message": m.Message, "type": m.Type, "chat": m.Chat,
			"permission": m.Permission, "id": m.ID,
		})))
	if err != nil {
		return PermanentError{Reason: "the relay's address is no URL"}
	}
	r.Header.Set("Content-Type", "application/json")
	if s.Relay.Secret != "" {
		r.Header.Set("X-Relay-Secret", s.Relay.Secret)
	}
	resp, err := relayClient.Do(r)
	err = checkResponse(resp, err)
	// the relay is missing, not the device
	if final := (PermanentError{}); errors.As(err, &final) && resp != nil && resp.StatusCode == http.StatusNotFound {
		return PermanentError{Reason: final.Reason}
	}
	return err
}
