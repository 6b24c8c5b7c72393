package handlers

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
	"pocketcoder/handlers/policy"
)

// NetworkMode says what becomes of a connection that no rule is about.
type NetworkMode string

// The modes. Whatever the mode, a rule that denies or asks counts, and only public hosts are reached.
const (
	NetworkOff  NetworkMode = "off"   // commands have no network; where a rule allows their chat a host, they have one as with ask
	NetworkAsks NetworkMode = "ask"   // a person decides
	NetworkOpen NetworkMode = "allow" // it may reach the web's ports, 80 and 443; about others a person decides
)

// Network lets commands reach hosts through the egress proxy, which asks it about every connection. nil lets none.
type Network struct {
	Gate  Gate
	Mode  NetworkMode
	Proxy string // host:port of the egress proxy, as commands reach it
	Tail  *log.Tail

	mu      sync.Mutex
	running map[string]*Execution
	ended   []string // tokens of the last that ended
}

// Limits of one execution.
const (
	MaxConnections = 64  // at a time
	maxHosts       = 256 // addresses it may try
)

// maxEnded is how many tokens stay concealed when their executions have ended: what those printed may still be on its way into
// the log.
const maxEnded = 64

// ErrWaiting says that a person has not decided yet.
var ErrWaiting = errors.New("a person has not decided yet")

// Execution is a running command that has a network. It is safe for concurrent use.
type Execution struct {
	network *Network
	chat    string
	what    events.ExecRequested
	tool    events.Call // empty of a command that no tool call made
	agent   string
	token   string

	connections map[*context.CancelFunc]bool // guarded by the network's lock

	deciding sync.Mutex
	asks     map[policy.Address]string // the permission that each waited for last
	hosts    map[string]bool           // what was tried
	told     map[told]bool

	noting   sync.Mutex
	refusals []string // host:port and why, for the model
}

// told is what exec.connected has said of an execution.
type told struct {
	address string
	allowed bool
}

// For gives the URL of the proxy for a command that is about to run, with credentials that are good until Done; empty when the
// command has no network. It is called before anything of the command's output is recorded, so that the credentials never are.
func (n *Network) For(ctx context.Context, chat string, what events.ExecRequested) (proxyURL string, err error) {
	if n == nil {
		return "", nil
	}
	attachable, err := n.attachable(ctx)
	if err != nil || !attachable {
		return "", err
	}
	x := &Execution{
		network: n, chat: chat, what: what, token: rand.Text(), connections: map[*context.CancelFunc]bool{},
		asks: map[policy.Address]string{}, hosts: map[string]bool{}, told: map[told]bool{},
	}
	if err := x.identify(ctx); err != nil {
		return "", err
	}
	rules, err := n.Gate.InForce(ctx, x.scope())
	if err != nil || n.Mode == NetworkOff && !slices.ContainsFunc(rules, allowsHosts) {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running == nil {
		n.running = map[string]*Execution{}
	}
	if n.conceal(x.token) > len(n.ended) {
		return "", refuse(Conflict, "the command cannot have a network: there are too many secrets to keep its own from the log")
	}
	n.running[what.Exec] = x
	return (&url.URL{Scheme: "http", User: url.UserPassword(what.Exec, x.token), Host: n.Proxy}).String(), nil
}

// Done ends the network of an execution, its connections and its credentials. One that has none is no error.
func (n *Network) Done(exec string) {
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

// End is Done for an execution that has ended. The requests for hosts that only it waited for expire. It returns notes for
// the model: each refusal, or that there was no network.
func (n *Network) End(ctx context.Context, what events.ExecRequested) (notes []string) {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	x := n.running[what.Exec]
	n.mu.Unlock()
	if x == nil {
		if named, needs := policy.Reached(what.Command); needs && n.Gate.Network == NetworkOff {
			notes = append(notes, noNetwork(named))
		}
		return notes
	}
	n.Done(what.Exec)
	x.deciding.Lock()
	waited := len(x.asks) > 0
	x.deciding.Unlock()
	if waited {
		if err := n.Expire(ctx, x.chat); err != nil {
			n.Gate.Log.Error("expire requests for hosts", "chat", x.chat, "exec", what.Exec, "err", err)
		}
	}
	return x.notes()
}

// Expire ends the requests for hosts of a chat for which no running command waits. A command that begins to wait for one meanwhile
// requests the host again.
func (n *Network) Expire(ctx context.Context, chat string) error {
	if n == nil {
		return nil
	}
	h, waits := n.Gate.Handlers, n.waitedFor(chat)
	f := h.networks.get(ctx, chat, func() *folded { return fold(newNetworkState(), networkFilters(chat)) })
	_, err := h.carryOut(ctx, Command{Actor: events.ActorPolicy}, f, func() (all []events.Event, _ uint64, err error) {
		s := f.state.(*networkState)
		for _, id := range s.asked {
			if s.settled[id].how != "" || waits[id] {
				continue
			}
			e, err := events.New(chat, events.ActorPolicy, events.PermissionExpired{Permission: id, Reason: "the command that needed the host has ended"})
			if err != nil {
				return nil, 0, err
			}
			all = append(all, e)
		}
		return all, 0, nil
	})
	return err
}

// waitedFor are the requests for hosts that running commands of a chat wait for, or have waited for.
func (n *Network) waitedFor(chat string) map[string]bool {
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
		for _, id := range x.asks {
			waits[id] = true
		}
		x.deciding.Unlock()
	}
	return waits
}

// conceal keeps the tokens out of the log, and those of who begins; left is how many could not be. Where there is room for some
// alone it is for what runs, then for what begins, then for what has ended last. The lock is held.
func (n *Network) conceal(begin ...string) (left int) {
	var tokens []string
	for _, x := range n.running {
		tokens = append(tokens, x.token)
	}
	tokens = append(tokens, begin...)
	for _, token := range slices.Backward(n.ended) {
		tokens = append(tokens, token)
	}
	return n.Gate.Handlers.Log.Conceal("network", tokens...)
}

// Running finds the execution that has these credentials.
func (n *Network) Running(exec, token string) (*Execution, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.running[exec]
	if x == nil || subtle.ConstantTimeCompare([]byte(x.token), []byte(token)) != 1 {
		return nil, false
	}
	return x, true
}

// Begin counts a connection; its context ends with the command. It is not ok when there are MaxConnections, or the command has
// ended.
func (x *Execution) Begin(ctx context.Context) (connection context.Context, end func(), ok bool) {
	n := x.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running[x.what.Exec] != x || len(x.connections) >= MaxConnections {
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

// over says whether the command has ended.
func (x *Execution) over() bool {
	x.network.mu.Lock()
	defer x.network.mu.Unlock()
	return x.network.running[x.what.Exec] != x
}

// attachable says whether any command may have a network: it costs next to nothing where none has one.
func (n *Network) attachable(ctx context.Context) (found bool, err error) {
	if n.Mode != NetworkOff || slices.ContainsFunc(n.Gate.Rules, allowsHosts) {
		return true, nil
	}
	err = n.Gate.Handlers.withRulebook(ctx, func(b *rulebook) {
		for _, k := range b.rules {
			found = found || k.rule.Permission == NetworkAsk
		}
		for _, a := range b.actions {
			found = found || a.rule.Permission == NetworkAsk
		}
	})
	return found, err
}

func allowsHosts(r policy.Rule) bool {
	return r.Permission == NetworkAsk && (r.Action == policy.Allow || r.Action == "") && r.Check() == nil
}

// identify finds out which agent runs the command.
func (x *Execution) identify(ctx context.Context) error {
	if x.what.Session == "" {
		return nil // a person does
	}
	g := x.network.Gate
	a, err := g.Handlers.asked(ctx, x.chat, x.what.Permission)
	if err != nil || !a.found {
		return err
	}
	x.tool = a.ask.Tool
	call, _ := g.Call(ctx, x.what.Session, x.tool, 0)
	x.agent = call.Agent
	return nil
}

func (x *Execution) scope() RuleScope { return RuleScope{Chat: x.chat, Agent: x.agent, At: time.Now()} }

// reached returns the hosts that a command names and that no rule decides about, and for a command that needs a host and has no
// network a sentence that says so.
func (g Gate) reached(rules []policy.Rule, command string) (hosts []string, network string) {
	named, needs := policy.Reached(command)
	if g.Network == "" || !needs {
		return nil, ""
	}
	for _, at := range named {
		v := judge(rules, policy.Ask{Type: NetworkAsk, Patterns: []string{at.String()}, Address: at.String()})
		if v.Action == policy.AskPerson && !(g.Network == NetworkOpen && len(v.Rules) == 0 && at.Web()) {
			hosts = append(hosts, at.String())
		}
	}
	if g.Network != NetworkOff || slices.ContainsFunc(rules, allowsHosts) {
		return hosts, ""
	}
	return nil, noNetwork(named)
}

// noNetwork returns a sentence for people and models that says why a command reached no host.
func noNetwork(named []policy.Address) string {
	host := "its hosts"
	if len(named) > 0 {
		host = named[0].Host
	}
	return "The command has no network. Start PocketCoder with --network ask, or add a rule that allows " + host + "."
}
