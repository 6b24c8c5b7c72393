package permission

import (
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// NetworkMode decides a connection that no rule matches.
type NetworkMode string

// The network modes. In each mode, rules that deny or ask apply, and only public hosts are reachable.
const (
	NetworkOff  NetworkMode = "off"   // no network; if a rule allows a host for the chat, as with ask
	NetworkAsks NetworkMode = "ask"   // a person decides
	NetworkOpen NetworkMode = "allow" // ports 80 and 443 are allowed; a person decides about other ports
)

func AllowsHosts(r policy.Rule) bool {
	return r.Permission == events.KindNetwork && (r.Action == policy.Allow || r.Action == "") && r.Check() == nil
}

// AllowHosts reports whether each set has a rule that allows any host.
func (sets RuleSets) AllowHosts() bool {
	for _, rules := range sets {
		if !slices.ContainsFunc(rules, AllowsHosts) {
			return false
		}
	}
	return true
}

// EvaluateAddress returns the policy's verdict on a connection to an address.
func EvaluateAddress(rules RuleSets, at policy.Address) policy.Verdict {
	v, _ := rules.judge(policy.Input{Type: events.KindNetwork, Patterns: []string{at.String()}, Address: at.String()})
	return v
}

// UndecidedHosts returns the hosts that a command names and that no rule decides. If the command needs a host but has
// no network, it returns a sentence that says so instead.
func (g Gate) UndecidedHosts(rules RuleSets, command string) (hosts []string, network string) {
	named, needs := policy.NamedHosts(command)
	if g.Network == "" || !needs {
		return nil, ""
	}
	for _, at := range named {
		v := EvaluateAddress(rules, at)
		if v.Action == policy.AskPerson && !(g.Network == NetworkOpen && len(v.Rules) == 0 && at.Web()) {
			hosts = append(hosts, at.String())
		}
	}
	if g.Network != NetworkOff || rules.AllowHosts() {
		return hosts, ""
	}
	return nil, NoNetwork(named)
}

// NoNetwork returns a sentence for people and models that says why a command reached no host.
func NoNetwork(named []policy.Address) string {
	host := "its hosts"
	if len(named) > 0 {
		host = named[0].Host
	}
	return "The command has no network. Start PocketCoder with --network ask, or add a rule that allows " + host + "."
}

// HostPattern returns the pattern of the rule that allows the first host that a command names. It returns "" if the
// command names none.
func HostPattern(command string) string {
	named, _ := policy.NamedHosts(command)
	if len(named) == 0 {
		return ""
	}
	if at := named[0]; !at.Web() {
		return at.String()
	}
	return policy.Bracketed(named[0].Host)
}
