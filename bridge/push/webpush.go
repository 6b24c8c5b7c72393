package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/atomicfile"

	"github.com/SherClockHolmes/webpush-go"
)

// VAPID is the key pair that identifies this system to push services (RFC 8292), in base64url. Without it, all
// subscriptions are lost.
type VAPID struct {
	Private string `json:"private"`
	Public  string `json:"public"`
}

// LoadVAPID reads the keys from a file, or creates the file. It returns an error if other users can read the file.
func LoadVAPID(file string) (VAPID, error) {
	fail := func(err error) (VAPID, error) { return VAPID{}, fmt.Errorf("load Web Push keys: %w", err) }
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		v, err := createVAPID(file)
		if err != nil {
			return fail(err)
		}
		return v, nil
	}
	if err != nil {
		return fail(err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return fail(fmt.Errorf("%s must be a plain file that only its owner can read (mode 0600), it is %s", file,
			info.Mode()))
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return fail(err)
	}
	var v VAPID
	if err := json.Unmarshal(body, &v); err != nil || v.Private == "" || v.Public == "" {
		return fail(fmt.Errorf("%s does not hold a private and a public key", file))
	}
	return v, nil
}

// createVAPID writes new keys to a file.
func createVAPID(file string) (v VAPID, err error) {
	if v.Private, v.Public, err = webpush.GenerateVAPIDKeys(); err != nil {
		return v, err
	}
	body, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	return v, atomicfile.Write(file, append(body, '\n'))
}

// subscription parses a browser's PushSubscription in JSON.
func subscription(token string) (s webpush.Subscription, err error) {
	if err := json.Unmarshal([]byte(token), &s); err != nil || s.Endpoint == "" || s.Keys.Auth == "" ||
		s.Keys.P256dh == "" {
		return s, permanentError{Reason: "the push_token is not a subscription with endpoint, keys.auth and keys.p256dh"}
	}
	return s, nil
}

// sendWebPush sends a message that only the browser can read (RFC 8291). A withdrawal has the same topic, so it
// replaces an undelivered message (RFC 8030, 5.4), and the same id, so the service worker removes a delivered one.
func (s *Sender) sendWebPush(ctx context.Context, d Device, m Message) error {
	browser, err := subscription(d.Token)
	if err != nil {
		return err
	}
	client, err := s.client(browser.Endpoint)
	if err != nil {
		return err
	}
	body := s.payload(m)
	body.Actions = m.Buttons
	seconds, _ := strconv.Atoi(lifetime)
	o := webpush.Options{
		HTTPClient: client, Topic: m.ID, TTL: seconds, Urgency: webpush.UrgencyHigh, Subscriber: s.contact(),
		VAPIDPublicKey: s.VAPID.Public, VAPIDPrivateKey: s.VAPID.Private,
	}
	if m.Type == taskComplete || m.Done {
		o.Urgency = webpush.UrgencyNormal
	}
	resp, err := webpush.SendNotificationWithContext(ctx, events.MustEncode(body), &browser, &o)
	if err != nil && !errors.As(err, new(*url.Error)) { // not sent, because a key of the subscription is invalid
		return permanentError{Reason: "the push_token is not a subscription: " + err.Error()}
	}
	return checkResponse(resp, err)
}

// contact returns the contact for push services (RFC 8292, 2.1): the URL of this system.
func (s *Sender) contact() string {
	if strings.HasPrefix(s.URL, "https:") {
		return s.URL
	}
	return "https://localhost"
}
