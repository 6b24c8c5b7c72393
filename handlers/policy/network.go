package policy

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/hostport"
)

// hostPattern is the parsed pattern of a network rule.
type hostPattern struct {
	host  string // without the leading *.
	below bool   // matches the names below host, not host itself
	port  uint16 // 0 for none
}

// parseHostPattern parses a pattern such as api.example.org, *.example.org or git.example.org:22.
func parseHostPattern(s string, allow bool) (p hostPattern, wrong *SyntaxError) {
	at := func(column int, err error) *SyntaxError { return &SyntaxError{column, err.Error()} }
	host, port := hostport.SplitPort(s)
	if host != s {
		n, err := hostport.ParsePort(port)
		if err != nil {
			return p, at(utf8.RuneCountInString(host)+2, err)
		}
		p.port = n
	}
	name := host
	if name, p.below = strings.CutPrefix(host, "*."); p.below && allow &&
		!strings.Contains(strings.TrimSuffix(name, "."), ".") {
		return p, &SyntaxError{1, "a * stands before the last two names: *.example.com"}
	}
	if i := strings.IndexByte(name, '*'); i >= 0 {
		return p, &SyntaxError{len(host) - len(name) + i + 1,
			"want a host such as api.example.org, *.example.org or git.example.org:22"}
	}
	var err error
	if p.host, err = hostport.ParseHost(name); err != nil {
		return p, at(len(host)-len(name)+1, err)
	}
	if _, err := netip.ParseAddr(p.host); err == nil && p.below {
		return p, &SyntaxError{1, "a * stands before names, and no name ends in an IP address"}
	}
	if cause := (hostport.Address{Host: p.host}).Private(); cause != "" && allow {
		return p, &SyntaxError{1, cause}
	}
	return p, nil
}

// matches reports whether a rule matches an address. Without a port, a rule that denies or asks matches every port, and
// a rule that allows matches the ports of the web. A name with other letters than ASCII may look like another name, so
// only its exact pattern allows it.
func (p hostPattern) matches(a hostport.Address, allow bool) bool {
	if p.port != a.Port && (p.port != 0 || allow && !a.Web()) {
		return false
	}
	if !p.below {
		return a.Host == p.host
	}
	name, below := strings.CutSuffix(a.Host, "."+p.host)
	return below && !(allow && strings.Contains("."+name, ".xn--"))
}

// network evaluates a connection of a running command.
func (e *evaluation) network() Verdict {
	at, err := hostport.Parse(e.ask.Address)
	if err != nil {
		return Verdict{Action: Deny, Reason: err.Error()}
	}
	types := []string{"network"}
	v, done := e.forbid(types, func(r *compiledRule) bool { return r.coversAll() || r.host.matches(at, false) })
	if cause := at.Private(); cause != "" && v.Action != Deny {
		return Verdict{Action: Deny, Reason: cause}
	}
	if done {
		return v
	}
	return e.permit(types, "", func(r *compiledRule) bool { return r.host.matches(at, true) })
}
