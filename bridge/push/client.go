package push

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

// sendTimeout limits one request to a push service, including the name lookup and the response.
const sendTimeout = 10 * time.Second

// clients are the HTTP clients. The zero value is ready.
type clients struct {
	once                    sync.Once
	public, private, either *http.Client
}

// guarded returns a client that dials only addresses that the guard allows. The guard sees the address after the name
// lookup. The client uses no proxy of the environment, because a proxy would hide the address.
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

func (s *Sender) client(endpoint string) (*http.Client, error) {
	s.clients.open()
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return nil, permanentError{Reason: "the endpoint is not a URL"}
	}
	switch {
	case u.Scheme == "https" && s.AllowPrivate:
		return s.clients.either, nil
	case u.Scheme == "https":
		return s.clients.public, nil
	case u.Scheme == "http" && s.AllowPrivate:
		return s.clients.private, nil
	}
	return nil, permanentError{Reason: "the endpoint must be https"}
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
