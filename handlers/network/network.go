// Package network decides which hosts are reached through the egress proxy: by the commands in the sandbox (Sandbox),
// by MCP servers (Servers), and by OpenCode itself (Engine).
//
// Promises: every connection of a command is decided by the rules, by the mode and then by a person, and every
// connection of an MCP server by the rules and its approved hosts. Both are recorded before they are dialled.
// Credentials are valid for one execution or server while it runs, and never reach the log. A request for a host
// expires with the last command that waits for it.
//
// It must not know HTTP, how names are resolved, or how a command runs.
package network

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/url"
	"slices"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// Sandbox decides which hosts commands reach through the egress proxy. The proxy checks every connection with it. A nil
// Sandbox allows no network.
type Sandbox struct {
	Gate  permission.Gate
	Mode  permission.NetworkMode
	Proxy string // host:port of the egress proxy, as commands reach it
	Tail  *log.Tail

	mu      sync.Mutex
	running map[string]*Execution
	ended   []string // tokens of the executions that ended last
}

// Limits of one execution.
const (
	MaxConnections = 64  // at a time
	maxHosts       = 256 // addresses it may try
)

// maxEnded limits the tokens that stay concealed after their executions or servers have ended. Their output may not be
// in the log yet.
const maxEnded = 64

var ErrWaiting = errors.New("a person has not decided yet")

// Execution is a running command that has a network. It is safe for concurrent use.
type Execution struct {
	network   *Sandbox
	chat      string
	requested events.ExecRequested
	tool      events.Call // empty for a person's shell
	agent     string
	chosen    string // id of the agent that a person chose for the turn
	token     string

	connections map[*context.CancelFunc]bool // guarded by the network's lock

	deciding sync.Mutex
	requests map[policy.Address]string // the id of the last permission request for each address
	hosts    map[string]bool           // the addresses that the command has tried
	recorded map[recordedConnection]bool

	noting   sync.Mutex
	refusals []string // host:port and why, for the model
}

// recordedConnection is a connection of an execution for which exec.connected is recorded.
type recordedConnection struct {
	address string
	allowed bool
}

// For returns the URL of the proxy for a command that is about to run, with credentials that are valid until Done. It
// returns "" if the command has no network. It must be called before any output of the command is recorded, so that the
// credentials are redacted there.
func (n *Sandbox) For(ctx context.Context, chat string, request events.ExecRequested) (proxyURL string, err error) {
	if n == nil {
		return "", nil
	}
	attach, err := n.mayAttach(ctx)
	if err != nil || !attach {
		return "", err
	}
	x := &Execution{
		network: n, chat: chat, requested: request, token: rand.Text(), connections: map[*context.CancelFunc]bool{},
		requests: map[policy.Address]string{}, hosts: map[string]bool{}, recorded: map[recordedConnection]bool{},
	}
	if err := x.identify(ctx); err != nil {
		return "", err
	}
	rules, err := n.Gate.RuleSets(ctx, x.scope())
	if err != nil || n.Mode == permission.NetworkOff && !rules.AllowHosts() {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running == nil {
		n.running = map[string]*Execution{}
	}
	if n.conceal(x.token) > len(n.ended) {
		return "", handlers.Refuse(handlers.Conflict,
			"the command cannot have a network: too many secrets are stored, so its credentials could not be redacted")
	}
	n.running[request.Exec] = x
	return (&url.URL{Scheme: "http", User: url.UserPassword(request.Exec, x.token), Host: n.Proxy}).String(), nil
}

// Done ends the network access of an execution: its connections and its credentials. It does nothing if the execution
// has no network.
func (n *Sandbox) Done(exec string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.running[exec]
	if x == nil {
		return
	}
	delete(n.running, exec)
	for end := range x.connections {
		(*end)()
	}
	n.ended = append(n.ended, x.token)
	n.ended = n.ended[max(0, len(n.ended)-maxEnded):]
	n.conceal()
}

// End is Done for an execution that has ended. The requests for hosts that only it waited for expire. It returns notes
// for the model: each refusal, or that there was no network.
func (n *Sandbox) End(ctx context.Context, request events.ExecRequested) (notes []string) {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	x := n.running[request.Exec]
	n.mu.Unlock()
	if x == nil {
		if named, needs := policy.NamedHosts(request.Command); needs && n.Gate.Network == permission.NetworkOff {
			notes = append(notes, permission.NoNetwork(named))
		}
		return notes
	}
	n.Done(request.Exec)
	x.deciding.Lock()
	waited := len(x.requests) > 0
	x.deciding.Unlock()
	if waited {
		if err := n.Expire(ctx, x.chat); err != nil {
			n.Gate.Logger.Error("expire requests for hosts", "chat", x.chat, "exec", request.Exec, "err", err)
		}
	}
	return x.notes()
}

// log returns the log in which decisions are recorded.
func (n *Sandbox) log() *log.Log { return n.Gate.Permissions.Log }

// Expire ends the requests for hosts of a chat for which no running command waits. A command that begins to wait for
// one meanwhile requests the host again.
func (n *Sandbox) Expire(ctx context.Context, chat string) error {
	if n == nil {
		return nil
	}
	waits := n.neededRequests(chat)
	c := handlers.Command{Actor: events.ActorPolicy}
	_, err := n.Gate.Permissions.Chat(ctx, chat).Execute(ctx, n.log(), c,
		func(s *permission.State) (all []events.Event, _ uint64, err error) {
			for _, r := range s.HostRequests() {
				if !r.Pending() || waits[r.ID] {
					continue
				}
				e, err := events.New(chat, events.ActorPolicy, events.PermissionExpired{Permission: r.ID,
					Reason: "the command that needed the host has ended"})
				if err != nil {
					return nil, 0, err
				}
				all = append(all, e)
			}
			return all, 0, nil
		})
	return err
}

// neededRequests returns the requests for hosts that running commands of a chat wait for, or have waited for.
func (n *Sandbox) neededRequests(chat string) map[string]bool {
	n.mu.Lock()
	var running []*Execution
	for _, x := range n.running {
		if x.chat == chat {
			running = append(running, x)
		}
	}
	n.mu.Unlock()
	waits := map[string]bool{}
	for _, x := range running {
		x.deciding.Lock()
		for _, id := range x.requests {
			waits[id] = true
		}
		x.deciding.Unlock()
	}
	return waits
}

// conceal registers the tokens of running, beginning and recently ended executions for redaction, in this order. It
// returns how many tokens did not fit. n.mu must be held.
func (n *Sandbox) conceal(begin ...string) (left int) {
	var tokens []string
	for _, x := range n.running {
		tokens = append(tokens, x.token)
	}
	tokens = append(tokens, begin...)
	for _, token := range slices.Backward(n.ended) {
		tokens = append(tokens, token)
	}
	return n.log().Conceal(secret.System, "network", tokens...)
}

// Running returns the running execution with these credentials.
func (n *Sandbox) Running(exec, token string) (*Execution, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.running[exec]
	if x == nil || subtle.ConstantTimeCompare([]byte(x.token), []byte(token)) != 1 {
		return nil, false
	}
	return x, true
}

// Begin counts a connection. Its context ends with the command. Begin is not ok if the command has MaxConnections or
// has ended.
func (x *Execution) Begin(ctx context.Context) (connection context.Context, end func(), ok bool) {
	n := x.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running[x.requested.Exec] != x || len(x.connections) >= MaxConnections {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	x.connections[&cancel] = true
	return ctx, func() {
		cancel()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(x.connections, &cancel)
	}, true
}

// hasEnded reports whether the command has ended.
func (x *Execution) hasEnded() bool {
	x.network.mu.Lock()
	defer x.network.mu.Unlock()
	return x.network.running[x.requested.Exec] != x
}

// mayAttach reports whether any command may have a network. This check is cheap if none may.
func (n *Sandbox) mayAttach(ctx context.Context) (found bool, err error) {
	if n.Mode != permission.NetworkOff || slices.ContainsFunc(n.Gate.Rules, permission.AllowsHosts) {
		return true, nil
	}
	return rule.Has(ctx, n.Gate.Records, events.KindNetwork)
}

// identify looks up the tool call and the agent of the command.
func (x *Execution) identify(ctx context.Context) error {
	if x.requested.Session == "" {
		return nil // a person's shell
	}
	g := x.network.Gate
	a, ok, err := g.Permissions.OpenCodeRequest(ctx, x.chat, x.requested.Permission)
	if err != nil || !ok {
		return err
	}
	x.tool = a.Tool
	call, _ := g.Call(ctx, x.requested.Session, x.tool, 0)
	x.agent, x.chosen = call.Agent, call.Chosen
	return nil
}

func (x *Execution) scope() rule.Scope {
	return rule.Scope{Chat: x.chat, Agent: x.agent, Chosen: x.chosen, At: time.Now()}
}
