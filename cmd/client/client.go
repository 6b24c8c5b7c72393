// Package client is the connection to a running system over its HTTP API: of the system on this machine, in the name of
// the operator, or of a system elsewhere, in the name of an account. It also has the lists that several commands show.
//
// Promises: an answer includes every event that the log holds when the request is sent.
//
// It must not know terminals, flags, or how an answer is shown.
package client

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// System is a running PocketCoder.
type System struct {
	Address
	http   *http.Client
	url    string      // without a slash at its end
	states chan bool   // see Connected
	lost   atomic.Bool // Read has lost its connection

	reached atomic.Bool // it has answered
}

// requestTimeout limits a request whose answer is read whole.
const requestTimeout = time.Minute

// Connect returns a connection to the running system.
func Connect(ctx context.Context, at Address) (*System, error) {
	if at.Server != "" {
		return connectElsewhere(ctx, at)
	}
	if _, err := at.Data.Running(); err != nil {
		return nil, err
	}
	s := At(localURL)
	s.Address, s.http.Transport = at, overSocket(at.Data.APISocket())
	return s, nil
}

// At returns a connection to the API at a URL.
func At(url string) *System {
	// a redirect would get the token, without TLS too
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &System{http: &http.Client{CheckRedirect: stay}, url: url, states: make(chan bool, 8)}
}

// name names the system for a person.
func (s *System) name() string { return cmp.Or(s.Server, string(s.Data), s.url) }

func (s *System) Close() { s.http.CloseIdleConnections() }

// ReconnectTime is how long a lost connection may take to come back.
const ReconnectTime = 20 * time.Second

// Send sends v, unless ctx ends first.
func Send[V any](ctx context.Context, to chan<- V, v V) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
