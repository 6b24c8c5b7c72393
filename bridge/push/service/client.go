package service

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"pocketcoder/bridge/egress"
)

// sendTimeout bounds one request to a push service, from the look-up of its name to the end of its answer.
const sendTimeout = 10 * time.Second

// clients are the HTTP clients. The zero value is ready.
type clients struct {
	once                    sync.Once
	public, private, either *http.Client
}

// guarded makes a client that dials what the guard lets pass. The guard sees the address after the name was looked up,
// so no name leads elsewhere; a proxy of the environment would hide the address, so none is used.
func guarded(guard func(netip.Addr) error) *http.Client {
	dialer := net.Dialer{Timeout: sendTimeout, Control: egress.Guard(guard)}
	return &http.Client{
		Timeout: sendTimeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: sendTimeout, MaxResponseHeaderBytes: 16 << 10,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// client gives the client for an endpoint that a person gave us.
func (s *Sender) client(endpoint string) (*http.Client, error) {
	s.clients.open()
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return nil, PermanentError{Reason: "the endpoint is no URL"}
	}
	switch {
	case u.Scheme == "https" && s.AllowPrivate:
		return s.clients.either, nil
	case u.Scheme == "https":
		return s.clients.public, nil
	case u.Scheme == "http" && s.AllowPrivate:
		return s.clients.private, nil
	}
	return nil, PermanentError{Reason: "the endpoint must be https"}
}

func (c *clients) open() {
	c.once.Do(func() {
		c.public = guarded(egress.Public)
		c.private = guarded(func(a netip.Addr) error {
			if !a.IsLoopback() && !a.IsPrivate() {
				return fmt.Errorf("http is for loopback and private addresses, %s is neither", a)
			}
			return nil
		})
		c.either = guarded(func(netip.Addr) error { return nil })
	})
}
