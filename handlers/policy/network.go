package policy

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/hostport"
)

// hostPattern is the pattern of a rule for network.
type hostPattern struct {
	host  string // without *. in front
	below bool   // the names that end in it, not it
	port  uint16 // 0 when it names none
}

// parseHostPattern reads api.example.org, *.example.org or git.example.org:22.
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

// matches says whether a rule is about an address. One that names no port is about every port when it denies or asks,
// and about the web's when it allows; a name in other letters, which may look like another, is allowed only by itself.
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

// network decides about a connection of a command that was allowed to run.
func (e *evaluation) network() Verdict {
	at, err := hostport.Parse(e.ask.Address)
	if err != nil {
		return Verdict{Action: Deny, Reason: err.Error()}
	}
	if cause := at.Private(); cause != "" {
		return Verdict{Action: Deny, Reason: cause}
	}
	types := []string{"network"}
	if v, done := e.forbid(types, func(r *compiledRule) bool {
		return r.everything() || r.host.matches(at, false)
	}); done {
		return v
	}
	return e.permit(types, "", func(r *compiledRule) bool { return r.host.matches(at, true) })
}
