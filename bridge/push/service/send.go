// Package service sends messages to the push services of devices: UnifiedPush and ntfy, Web Push, and a relay to
// Firebase.
//
// An endpoint is reached over https at a public address or not at all: the address is checked when it is dialled,
// redirects are not followed. No error names an endpoint or a token.
//
// It must not know who is notified of what, nor the log.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"pocketcoder/bridge/egress"
	"pocketcoder/events"
)

// Sender hands messages to push services. The zero value is ready but for what it lacks: no relay, no Web Push.
type Sender struct {
	URL          string // under which devices reach us, without a / at its end
	VAPID        VAPID
	Relay        Relay
	AllowPrivate bool // endpoints may be at private and loopback addresses, and speak http there

	clients clients
}

const (
	FCM         = "fcm"
	UnifiedPush = "unifiedpush"
	WebPush     = "webpush"
)

// Device is where a person can be notified.
type Device struct {
	ID, User, Name string
	Service        string // FCM, UnifiedPush or WebPush
	Token          string // its URL, its subscription as JSON, or Firebase's name for it: a secret
}

// The types of a notice that services present in a way of their own.
const (
	TaskComplete = "task_complete"
	TaskError    = "task_error"
)

// Message is what is sent to a device: a notice, or that it is done with.
type Message struct {
	events.Notice
	ID      string // of the notification
	Buttons []Button
	Done    bool // what the notice asked for is decided
}

// PermanentError is an error that trying again does not mend.
type PermanentError struct {
	Reason string
	Gone   bool // the push service does not know the device any more
}

func (e PermanentError) Error() string { return e.Reason }

// Send hands a message to the device's push service.
func (s *Sender) Send(ctx context.Context, d Device, m Message) error {
	switch d.Service {
	case UnifiedPush:
		return s.sendUnifiedPush(ctx, d, m)
	case WebPush:
		return s.sendWebPush(ctx, d, m)
	case FCM:
		return s.sendRelay(ctx, d, m)
	}
	return PermanentError{Reason: fmt.Sprintf("there is no push service %q", d.Service)}
}

// Host is that of the device's push service: all of an endpoint that may be told.
func (s *Sender) Host(d Device) string {
	endpoint := d.Token
	switch d.Service {
	case WebPush:
		browser, _ := subscription(d.Token)
		endpoint = browser.Endpoint
	case FCM:
		endpoint = s.Relay.URL
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 4 << 10

// checkResponse reads the answer of a push service.
func checkResponse(resp *http.Response, err error) error {
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	// so that the connection can be used again; more than that is not waited for
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code < 400:
		return PermanentError{Reason: fmt.Sprintf("%s: it redirects, which is not followed", status(resp))}
	case code == http.StatusNotFound, code == http.StatusGone:
		return PermanentError{Reason: status(resp), Gone: true}
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return errors.New(status(resp))
	default:
		return PermanentError{Reason: status(resp)}
	}
}

// status is the code in our words: a hostile endpoint writes its own.
func status(resp *http.Response) string {
	return fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

// withoutURL takes the address out of an error of net/http: it is a secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if forbidden := (egress.ForbiddenError{}); errors.As(err, &forbidden) {
		return PermanentError{Reason: "the endpoint is not allowed: " + forbidden.Error()}
	}
	return err
}
