package push

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"
)

// sendTimeout bounds one request to a push service, from the look-up of its name to the end of its answer.
const sendTimeout = 10 * time.Second

// errForbidden says that an endpoint is somewhere we do not go.
var errForbidden = errors.New("the endpoint is not allowed")

// clients are the HTTP clients. The zero value is ready.
type clients struct {
	once                    sync.Once
	public, private, either *http.Client
}

// guarded makes a client that dials what the guard lets pass. The guard sees the address after the name was looked up, so no name
// leads elsewhere; a proxy of the environment would hide the address, so none is used.
func guarded(guard func(netip.Addr) error) *http.Client {
	dialer := net.Dialer{Timeout: sendTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %s", errForbidden, address)
		}
		return guard(at.Addr().Unmap().WithZone(""))
	}}
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
func (p *Push) client(endpoint string) (*http.Client, error) {
	p.clients.open()
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return nil, permanent{reason: "the endpoint is no URL"}
	}
	switch {
	case u.Scheme == "https" && p.AllowPrivate:
		return p.clients.either, nil
	case u.Scheme == "https":
		return p.clients.public, nil
	case u.Scheme == "http" && p.AllowPrivate:
		return p.clients.private, nil
	}
	return nil, permanent{reason: "the endpoint must be https"}
}

func (c *clients) open() {
	c.once.Do(func() {
		c.public = guarded(func(a netip.Addr) error {
			if !public(a) {
				return fmt.Errorf("%w: %s is not a public address", errForbidden, a)
			}
			return nil
		})
		c.private = guarded(func(a netip.Addr) error {
			if !a.IsLoopback() && !a.IsPrivate() {
				return fmt.Errorf("%w: http is for loopback and private addresses, %s is neither", errForbidden, a)
			}
			return nil
		})
		c.either = guarded(func(netip.Addr) error { return nil })
	})
}

// special are the addresses that net/netip calls global unicast and that lead into a private or no network: the registries for
// special purposes, RFC 6890, and what carries an IPv4 address inside.
var special = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10")

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// public says whether an address is one of the internet's. Those of cloud metadata services are link-local or private.
func public(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}
