package push

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

// Sender sends messages to push services. With the zero value of a field, that service is not available.
type Sender struct {
	URL          string // public URL of this system, without a / at its end
	VAPID        VAPID
	Relay        Relay
	AllowPrivate bool // allow endpoints at private and loopback addresses, with http too

	clients clients
}

const (
	fcm         = "fcm"
	UnifiedPush = "unifiedpush"
	webPush     = "webpush"
)

type Device struct {
	ID, User, Name string
	Service        string // fcm, UnifiedPush or webPush
	Token          string // URL, subscription in JSON, or Firebase token: a secret
}

// The types of a notice that services present in a way of their own.
const (
	taskComplete = "task_complete"
	taskError    = "task_error"
)

// Message is a notice for a device, or its withdrawal.
type Message struct {
	events.Notice
	ID      string // of the notification
	Buttons []Button
	Done    bool // withdraws the notice, because its request is decided
}

// permanentError is an error for which another try cannot help.
type permanentError struct {
	Reason string
	Gone   bool // the push service does not know the device any more
}

func (e permanentError) Error() string { return e.Reason }

// Send sends a message to the push service of a device.
func (s *Sender) Send(ctx context.Context, d Device, m Message) error {
	switch d.Service {
	case UnifiedPush:
		return s.sendUnifiedPush(ctx, d, m)
	case webPush:
		return s.sendWebPush(ctx, d, m)
	case fcm:
		return s.sendRelay(ctx, d, m)
	}
	return permanentError{Reason: fmt.Sprintf("there is no push service %q", d.Service)}
}

// Host returns the host of the device's push service. The rest of the endpoint is secret.
func (s *Sender) Host(d Device) string {
	endpoint := d.Token
	switch d.Service {
	case webPush:
		browser, _ := subscription(d.Token)
		endpoint = browser.Endpoint
	case fcm:
		endpoint = s.Relay.URL
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// maxAnswer limits how much of a response is read, in bytes.
const maxAnswer = 4 << 10

// checkResponse returns an error unless the push service has accepted the message.
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
		return permanentError{Reason: fmt.Sprintf("%s: it redirects, which is not followed", status(resp))}
	case code == http.StatusNotFound, code == http.StatusGone:
		return permanentError{Reason: status(resp), Gone: true}
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return errors.New(status(resp))
	default:
		return permanentError{Reason: status(resp)}
	}
}

// status describes a status code with our own text, because a hostile endpoint chooses its text.
func status(resp *http.Response) string {
	return fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

// withoutURL removes the secret URL from an error of net/http.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if forbidden := (egress.ForbiddenError{}); errors.As(err, &forbidden) {
		return permanentError{Reason: "the endpoint is not allowed: " + forbidden.Error()}
	}
	return err
}
