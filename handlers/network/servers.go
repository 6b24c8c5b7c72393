package network

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/policy/hostport"
	"pocketcoder/handlers/record/rulebook"
)

// Servers decides which hosts the MCP gateway reaches through the egress proxy: those of the remote MCP servers that
// administrators approved. A rule can deny one. It is safe for concurrent use.
type Servers struct {
	Network *Sandbox

	mu    sync.Mutex
	token string
	hosts map[string]bool // host:port
}

// serversUser is the user name of the gateway's credentials for the proxy.
const serversUser = "mcp"

// Allow sets the addresses of the approved servers, given as host:port.
func (n *Servers) Allow(addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts = map[string]bool{}
	for _, address := range addresses {
		if at, err := hostport.Parse(address); err == nil {
			n.hosts[at.String()] = true
		}
	}
}

// URL returns the URL of the proxy at an address, host:port, with the credentials of the gateway.
func (n *Servers) URL(proxy string) *url.URL {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.token == "" {
		n.token = rand.Text()
		n.Network.log().Conceal("mcp-gateway", n.token)
	}
	return &url.URL{Scheme: "http", User: url.UserPassword(serversUser, n.token), Host: proxy}
}

// Is reports whether the credentials are those of the gateway.
func (n *Servers) Is(user, token string) bool {
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return user == serversUser && n.token != "" && subtle.ConstantTimeCompare([]byte(n.token), []byte(token)) == 1
}

// Begin returns a context of a connection. The gateway closes its connections itself.
func (n *Servers) Begin(ctx context.Context) (connection context.Context, end func(), ok bool) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, cancel, true
}

// Private reports whether an address may be private: an administrator approved this very IP address.
func (n *Servers) Private(at hostport.Address) bool {
	_, err := netip.ParseAddr(at.Host)
	n.mu.Lock()
	defer n.mu.Unlock()
	return err == nil && n.hosts[at.String()]
}

// CheckAddress decides about a connection to an address, host:port in any spelling, and returns the address to dial. A
// refusal is a Refused.
func (n *Servers) CheckAddress(ctx context.Context, address string) (hostport.Address, error) {
	at, err := hostport.Parse(address)
	if err != nil {
		return at, handlers.Refuse(handlers.Invalid, "%s", err)
	}
	n.mu.Lock()
	approved := n.hosts[at.String()]
	n.mu.Unlock()
	if !approved {
		return at, handlers.Refuse(handlers.Conflict, "No approved MCP server has the address %s.", at)
	}
	rules, err := n.Network.Gate.InForce(ctx, rulebook.Scope{At: time.Now()})
	if err != nil {
		return at, err
	}
	v := permission.EvaluateAddress(permission.RuleSets{rules}, at)
	if v.Action == policy.Deny && (len(v.Rules) > 0 || !n.Private(at)) {
		return at, handlers.Refuse(handlers.Conflict, "%s", v.Reason)
	}
	return at, nil
}

// RecordBlocked returns the refusal of a private address that an approved name resolved to.
func (n *Servers) RecordBlocked(_ context.Context, _ hostport.Address, why error) error {
	return handlers.Refuse(handlers.Invalid, "%s", why)
}
