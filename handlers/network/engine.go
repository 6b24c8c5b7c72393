package network

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// Engine decides which hosts OpenCode itself reaches through the egress proxy: the hosts of its model providers, the
// host of a webfetch that was approved, and the hosts that a network rule allows. It is safe for concurrent use.
type Engine struct {
	Network *Sandbox
	Project string   // whose OpenCode this is
	Models  []string // host:port of the model URLs that the operator configured. These may have private addresses

	// Answered receives the status with which a server answered a request that had a key, unless nil. It must not block.
	Answered func(Credential, int)

	mu          sync.Mutex
	credentials []Credential // the keys that OpenCode does not have
	token       string
	life        context.Context // ends with the run of OpenCode that has the token
	end         context.CancelFunc
	hosts       map[string]bool // host:port of providers
}

// Credential is a key of a model provider. OpenCode sends Placeholder in its place, so that the key is neither in
// OpenCode's memory nor in its environment.
type Credential struct {
	Placeholder, Value string
	Key                string   // names the key for people: the variable that holds it, or its login
	Providers          []string // that it is a key of
	Addresses          []string // host:port of the servers that get the key. A * stands for one part of a name
	TLS                bool     // of these servers. OpenCode sends the proxy its requests in plain text
}

// SetCredentials replaces the keys that OpenCode does not have. The next request has the new ones.
func (n *Engine) SetCredentials(all []Credential) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.credentials = all
}

// Authorize replaces the placeholders of the keys for an address in the header of a request to it. It returns the keys
// that are in the header now.
func (n *Engine) Authorize(at policy.Address, header http.Header) (used []Credential) {
	n.mu.Lock()
	all := n.credentials
	n.mu.Unlock()
	for _, c := range all {
		if !slices.ContainsFunc(c.Addresses, func(pattern string) bool { return matchesAddress(pattern, at) }) {
			continue
		}
		found := false
		for _, values := range header {
			for i, value := range values {
				if strings.Contains(value, c.Placeholder) {
					values[i], found = strings.ReplaceAll(value, c.Placeholder, c.Value), true
				}
			}
		}
		if found {
			used = append(used, c)
		}
	}
	return used
}

func matchesAddress(pattern string, at policy.Address) bool {
	if address, err := policy.ParseAddress(pattern); err == nil {
		return address == at
	}
	want, got := strings.Split(pattern, "."), strings.Split(at.String(), ".")
	return slices.EqualFunc(want, got, func(want, got string) bool { return want == "*" || want == got })
}

// engineUser is the user name of OpenCode's credentials for the proxy.
const engineUser = "opencode"

// Renew returns the URL of the proxy with new credentials, for the next start of OpenCode. It closes the connections
// of the previous run.
func (n *Engine) Renew() *url.URL {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.end != nil {
		n.end()
	}
	n.life, n.end = context.WithCancel(context.Background())
	n.token = rand.Text()
	n.Network.log().Conceal(secret.System, "engine", n.token)
	return &url.URL{Scheme: "http", User: url.UserPassword(engineUser, n.token), Host: n.Network.Proxy}
}

// Allow sets the hosts of OpenCode's providers, given as host:port. OpenCode may reach them.
func (n *Engine) Allow(addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts = map[string]bool{}
	for _, address := range addresses {
		if at, err := policy.ParseAddress(address); err == nil {
			n.hosts[at.String()] = true
		}
	}
}

// Accepts reports whether the credentials are those of the running OpenCode.
func (n *Engine) Accepts(user, token string) bool {
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return user == engineUser && n.token != "" && subtle.ConstantTimeCompare([]byte(n.token), []byte(token)) == 1
}

// Begin returns a context that ends when the running OpenCode ends.
func (n *Engine) Begin(ctx context.Context) (connection context.Context, end func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.life, cancel)
	return ctx, func() { stop(); cancel() }, true
}

// Private reports whether an address may be private, because the operator configured it.
func (n *Engine) Private(at policy.Address) bool {
	return slices.ContainsFunc(n.Models, func(model string) bool {
		m, err := policy.ParseAddress(model)
		return err == nil && m == at
	})
}

// CheckAddress decides about a connection to an address, host:port in any spelling, and returns the address to dial. A
// refusal is a Refused.
func (n *Engine) CheckAddress(ctx context.Context, address string) (policy.Address, error) {
	at, err := policy.ParseAddress(address)
	if err != nil {
		return at, handlers.Refuse(handlers.Invalid, "%s", err)
	}
	n.mu.Lock()
	isProvider := n.hosts[at.String()]
	n.mu.Unlock()
	if isProvider || n.Private(at) {
		return at, nil
	}
	rules, err := n.Network.Gate.InForce(ctx, rule.Scope{Project: n.Project, At: time.Now()})
	if err != nil {
		return at, err
	}
	v := permission.EvaluateAddress(permission.RuleSets{rules}, at)
	if v.Action == policy.Deny {
		return at, handlers.Refuse(handlers.Conflict, "%s", v.Reason)
	}
	fetched, err := n.fetched(ctx, at)
	switch {
	case err != nil:
		return at, err
	case fetched, v.Action == policy.Allow, n.Network.Mode == permission.NetworkOpen && len(v.Rules) == 0 && at.Web():
		return at, nil
	}
	return at, handlers.Refuse(handlers.Conflict,
		"OpenCode may reach its model providers, the host of an approved webfetch, and hosts that a network rule allows. "+
			"No rule allows %s, and OpenCode cannot request a host. Fetch the final address, or use a command such as curl.", at)
}

// RecordBlocked returns the refusal of a private address that an allowed name resolved to.
func (n *Engine) RecordBlocked(_ context.Context, _ policy.Address, why error) error {
	return handlers.Refuse(handlers.Invalid, "%s", why)
}

// fetchTime is how long an approved webfetch covers its host: a webfetch times out after at most two minutes.
const fetchTime = 2*time.Minute + 10*time.Second

// fetched reports whether a webfetch of the host was approved within fetchTime.
func (n *Engine) fetched(ctx context.Context, at policy.Address) (found bool, err error) {
	l := n.Network.log()
	after, err := l.At(ctx, time.Now().Add(-fetchTime))
	if err != nil {
		return false, err
	}
	_, err = l.Fold(ctx, events.ChatSubject("*", events.PermissionDecided{}.Kind()), after, func(e events.Event) error {
		d, err := events.Decode(e)
		decided, ok := d.(events.PermissionDecided)
		if err != nil || !ok || decided.Decision != events.Authorized {
			return nil
		}
		a, ok, err := n.Network.Gate.Permissions.OpenCodeRequest(ctx, e.Subject.ID, decided.Permission)
		if err != nil {
			return err
		}
		if ok && fetchedBy(a) == at {
			found = true
			return events.ErrStop
		}
		return nil
	})
	if found {
		err = nil
	}
	return found, err
}

// fetchedBy returns the address that a request for webfetch is about; none for another request.
func fetchedBy(a events.PermissionRequest) (at policy.Address) {
	if a.Permission != events.KindWebfetch || len(a.Patterns) != 1 {
		return at
	}
	u, err := url.Parse(a.Patterns[0])
	if err != nil {
		return at
	}
	address := u.Host
	if u.Port() == "" {
		address += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	at, _ = policy.ParseAddress(address)
	return at
}
