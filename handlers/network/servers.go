package network

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// Servers decides which hosts the MCP servers reach through the egress proxy: each server its own hosts, which an
// administrator approved. A rule can deny one. A nil Servers has no server. It is safe for concurrent use.
type Servers struct {
	Network *Sandbox

	mu      sync.Mutex
	running map[string]*Server // by record
	ended   []string           // tokens of the servers that ended last
}

// Server is the network access of a running MCP server. It is safe for concurrent use.
type Server struct {
	servers  *Servers
	id, name string
	hosts    []string // patterns, as those of network rules; or private IP addresses
	token    string
	life     context.Context // ends with the server
	end      context.CancelFunc
	open     int // connections, guarded by the lock of servers

	recording sync.Mutex
	recorded  map[recordedConnection]bool
	reached   int // addresses that were allowed
}

// Start opens the access of a server to its hosts. Done closes it. Only one process of a server runs at a time. Start
// returns an error if the credentials could not be redacted in the log.
func (n *Servers) Start(id, name string, hosts []string) (*Server, error) {
	s := &Server{servers: n, id: id, name: name, hosts: hosts, token: rand.Text(),
		recorded: map[recordedConnection]bool{}}
	s.life, s.end = context.WithCancel(context.Background())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running == nil {
		n.running = map[string]*Server{}
	}
	n.running[id] = s
	if n.conceal() > len(n.ended) {
		delete(n.running, id)
		return nil, errors.New("there are too many secrets to keep those of its network out of the log")
	}
	return s, nil
}

// Done ends the access of a server: its connections and its credentials.
func (s *Server) Done() {
	n := s.servers
	n.mu.Lock()
	defer n.mu.Unlock()
	s.end()
	delete(n.running, s.id)
	n.ended = append(n.ended, s.token)
	n.ended = n.ended[max(0, len(n.ended)-maxEnded):]
	n.conceal()
}

// conceal registers the tokens of running and recently ended servers for redaction, in this order. It returns how many
// tokens did not fit. n.mu must be held.
func (n *Servers) conceal() (left int) {
	var tokens []string
	for _, s := range n.running {
		tokens = append(tokens, s.token)
	}
	for _, token := range slices.Backward(n.ended) {
		tokens = append(tokens, token)
	}
	return n.Network.log().Conceal(secret.System, "mcp-network", tokens...)
}

// URL returns the URL of the proxy at an address, host:port, with the credentials of the server.
func (s *Server) URL(proxy string) *url.URL {
	return &url.URL{Scheme: "http", User: url.UserPassword(s.id, s.token), Host: proxy}
}

// Running returns the running server with these credentials.
func (n *Servers) Running(id, token string) (*Server, bool) {
	if n == nil {
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.running[id]
	return s, s != nil && subtle.ConstantTimeCompare([]byte(s.token), []byte(token)) == 1
}

// Begin counts a connection. Its context ends with the server. Begin is not ok if the server has MaxConnections or has
// ended.
func (s *Server) Begin(ctx context.Context) (connection context.Context, end func(), ok bool) {
	n := s.servers
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.life.Err() != nil || s.open >= MaxConnections {
		return nil, nil, false
	}
	s.open++
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		n.mu.Lock()
		defer n.mu.Unlock()
		s.open--
	}, true
}

// Private reports whether an address may be private: an administrator approved this very IP address.
func (s *Server) Private(at policy.Address) bool {
	if _, err := netip.ParseAddr(at.Host); err != nil {
		return false
	}
	return slices.ContainsFunc(s.hosts, func(pattern string) bool {
		_, port := policy.SplitPort(pattern)
		approved, err := policy.ParseAddress(pattern)
		return err == nil && approved.Host == at.Host && (approved.Port == at.Port || port == "" && at.Web())
	})
}

// reaches reports whether an address is one of the server's hosts.
func (s *Server) reaches(at policy.Address) bool {
	rules := make([]policy.Rule, len(s.hosts))
	for i, pattern := range s.hosts {
		rules[i] = policy.Rule{Permission: events.KindNetwork, Pattern: pattern, Action: policy.Allow}
	}
	return permission.EvaluateAddress(permission.RuleSets{rules}, at).Action == policy.Allow
}

// CheckAddress decides about a connection to an address, host:port in any spelling, and returns the address to dial. A
// refusal is a Refused.
func (s *Server) CheckAddress(ctx context.Context, address string) (policy.Address, error) {
	at, err := policy.ParseAddress(address)
	if err != nil {
		at = policy.Address{Host: strings.ToValidUTF8(address[:min(len(address), 256)], "\uFFFD")}
		return at, s.record(ctx, at, false, err.Error())
	}
	rules, err := s.servers.Network.Gate.InForce(ctx, rule.Scope{At: time.Now()})
	if err != nil {
		return at, err
	}
	v := permission.EvaluateAddress(permission.RuleSets{rules}, at)
	switch {
	case v.Action == policy.Deny && len(v.Rules) > 0:
		return at, s.record(ctx, at, false, v.Reason)
	case s.Private(at) || s.reaches(at):
		return at, s.record(ctx, at, true, "a host of the MCP server "+s.name)
	}
	reason := "The MCP server " + s.name + " may not reach it. Its hosts are: " + strings.Join(s.hosts, ", ") + "."
	if _, err := netip.ParseAddr(at.Host); err != nil && at.Private() != "" {
		reason = "A private host is named by its IP address."
	}
	return at, s.record(ctx, at, false, reason)
}

// RecordBlocked records that an approved name resolved to a private address, which was not dialled.
func (s *Server) RecordBlocked(ctx context.Context, at policy.Address, why error) error {
	return s.record(ctx, at, false, why.Error())
}

// maxReached is how many addresses a server may reach while it runs: a wildcard covers any number.
const maxReached = 4 * maxHosts

// record records a decision, once for each allowed and each refused address of a running server. After 2*maxHosts
// events, only allowed addresses are recorded, and after maxReached of those no other is allowed. It returns the
// refusal, if the decision is one.
func (s *Server) record(ctx context.Context, at policy.Address, allowed bool, reason string) error {
	s.recording.Lock()
	defer s.recording.Unlock()
	key := recordedConnection{at.String(), allowed}
	if allowed && !s.recorded[key] {
		if s.reached >= maxReached {
			return handlers.Refuse(handlers.Conflict, "The MCP server %s has reached %d addresses since it was started, and may reach no other.",
				s.name, maxReached)
		}
		s.reached++
	}
	if !s.recorded[key] && (allowed || len(s.recorded) < 2*maxHosts) {
		e, err := events.NewConfig(mcpserver.Collection, s.id, events.ActorPolicy, events.MCPConnected{
			Name: s.name, Host: at.Host, Port: int(at.Port), Allowed: allowed, Reason: reason})
		if err == nil {
			_, err = s.servers.Network.log().Append(ctx, e)
		}
		if err != nil {
			return err
		}
		s.recorded[key] = true
	}
	if allowed {
		return nil
	}
	return handlers.Refuse(handlers.Conflict, "%s", reason)
}

// Connection is a host that an MCP server was allowed to reach, or refused.
type Connection struct {
	events.MCPConnected
	Last string `json:"last"` // when it was recorded last
}

// connectionTime is how long ago Connections begins.
const connectionTime = 7 * 24 * time.Hour

// Connections returns the connections of the MCP servers within connectionTime, by record: each address once with its
// last answer. server is the record of one server, or * for all.
func Connections(ctx context.Context, l *log.Log, server string) (map[string][]Connection, error) {
	after, err := l.At(ctx, time.Now().Add(-connectionTime))
	if err != nil {
		return nil, err
	}
	all := map[string][]Connection{}
	subject := events.ConfigSubject(mcpserver.Collection, server, events.MCPConnected{}.Kind())
	_, err = l.Fold(ctx, subject, after, func(e events.Event) error {
		d, err := events.Decode(e)
		now, ok := d.(events.MCPConnected)
		if err != nil || !ok {
			return nil // it was erased
		}
		list := slices.DeleteFunc(all[e.Subject.ID], func(c Connection) bool {
			return c.Host == now.Host && c.Port == now.Port
		})
		all[e.Subject.ID] = append(list, Connection{now, events.FormatTime(e.Time)})
		return nil
	})
	return all, err
}
