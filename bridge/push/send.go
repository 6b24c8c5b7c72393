package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"pocketcoder/bridge/egress"
	"pocketcoder/events"
)

// message is what is sent to a device: a notice, or that it is done with.
type message struct {
	events.Notice
	id      string // of the notification
	buttons []button
	done    bool // what the notice asked for is decided
}

// permanent is an error that trying again does not mend.
type permanent struct {
	reason string
	gone   bool // the push service does not know the device any more
}

func (e permanent) Error() string { return e.reason }

var inactive = map[string]json.RawMessage{"is_active": json.RawMessage("false")}

// send hands a message to the device's push service.
func (p *Push) send(ctx context.Context, d device, m message) error {
	switch d.service {
	case serviceUnifiedPush:
		return p.sendUnifiedPush(ctx, d, m)
	case serviceWebPush:
		return p.sendWebPush(ctx, d, m)
	case serviceFCM:
		return p.sendRelay(ctx, d, m)
	}
	return permanent{reason: fmt.Sprintf("there is no push service %q", d.service)}
}

// host is that of the device's push service: all of an endpoint that may be told.
func (d device) host(relay Relay) string {
	endpoint := d.token
	switch d.service {
	case serviceWebPush:
		s, _ := subscription(d.token)
		endpoint = s.Endpoint
	case serviceFCM:
		endpoint = relay.URL
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 4 << 10

// judge reads the answer of a push service.
func judge(resp *http.Response, err error) error {
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection can be used again; more than that is not waited for
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code < 400:
		return permanent{reason: fmt.Sprintf("%s: it redirects, which is not followed", status(resp))}
	case code == http.StatusNotFound, code == http.StatusGone:
		return permanent{reason: status(resp), gone: true}
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return errors.New(status(resp))
	default:
		return permanent{reason: status(resp)}
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
	if forbidden := (egress.Forbidden{}); errors.As(err, &forbidden) {
		return permanent{reason: "the endpoint is not allowed: " + forbidden.Error()}
	}
	return err
}
