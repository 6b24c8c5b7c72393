package service

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

	"pocketcoder/atomicfile"
	"pocketcoder/events"

	"github.com/SherClockHolmes/webpush-go"
)

// VAPID is the key pair with which push services know us (RFC 8292), each in base64url as browsers take the public
// one. Who loses it loses every subscription.
type VAPID struct {
	Private string `json:"private"`
	Public  string `json:"public"`
}

// LoadVAPID reads the keys from a file, and makes them when there is none. A file that others can read is refused.
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

// subscription reads what a browser's PushSubscription is as JSON.
func subscription(token string) (s webpush.Subscription, err error) {
	if err := json.Unmarshal([]byte(token), &s); err != nil || s.Endpoint == "" || s.Keys.Auth == "" ||
		s.Keys.P256dh == "" {
		return s, PermanentError{Reason: "the push_token is no subscription with endpoint, keys.auth and keys.p256dh"}
	}
	return s, nil
}

// sendWebPush sends a message that only the browser can read (RFC 8291). What is done with has the same topic, so that
// it takes the place of what was not delivered yet (RFC 8030, 5.4), and the same id, so that the service worker takes
// away what was.
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
	if m.Type == TaskComplete || m.Done {
		o.Urgency = webpush.UrgencyNormal
	}
	resp, err := webpush.SendNotificationWithContext(ctx, events.MustEncode(body), &browser, &o)
	if err != nil && !errors.As(err, new(*url.Error)) { // it was not sent at all: a key of the subscription is none
		return PermanentError{Reason: "the push_token is no subscription: " + err.Error()}
	}
	return checkResponse(resp, err)
}

// contact is whom a push service may ask about us (RFC 8292, 2.1): the address of this installation, which has TLS
// where browsers reach it.
func (s *Sender) contact() string {
	if strings.HasPrefix(s.URL, "https:") {
		return s.URL
	}
	return "https://localhost"
}
