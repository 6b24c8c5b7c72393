package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/display"
)

// Address is where a command connects to: the name of a host in lower case, without a dot at its end, or an IP address
// as netip writes it; and a port.
type Address struct {
	Host string
	Port uint16
}

// String is host:port, with an IPv6 address in brackets.
func (a Address) String() string { return bracketed(a.Host) + ":" + strconv.Itoa(int(a.Port)) }

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// Web says whether the port is one of the web's.
func (a Address) Web() bool { return a.Port == 80 || a.Port == 443 }

// ParseAddress reads host:port in any spelling there is of it; without a port it is 443. Its error says what is wrong
// in a sentence: what it refuses cannot be trusted to be what a person sees.
func ParseAddress(s string) (a Address, err error) {
	if cause := display.Misleading(s, false); cause != "" {
		return a, errors.New("the address cannot be trusted: " + cause)
	}
	host, port := splitPort(s)
	a.Port = 443
	if host != s {
		if a.Port, err = parsePort(port); err != nil {
			return a, err
		}
	}
	a.Host, err = parseHost(host)
	return a, err
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s is not a port", display.Quote(s))
	}
	return uint16(n), nil
}

// hostName is the name of a host as the domain name system has it (RFC 1035, 2.3.1, and _ because it occurs). Its last
// label does not begin with a digit: what does may be read as a number.
var hostName = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

const maxHostName = 253 // characters

func parseHost(s string) (string, error) {
	if strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return "", fmt.Errorf("%s is not a plain name: one in other letters than a to z is written xn--…", display.Quote(s))
	}
	name := strings.TrimSuffix(strings.ToLower(s), ".")
	if ip, ok := parseIP(name); ok {
		return ip.String(), nil
	}
	if len(name) > maxHostName || !hostName.MatchString(name) {
		return "", fmt.Errorf("%s is not the plain name of a host", display.Quote(s))
	}
	return name, nil
}

// parseIP reads an IP address as programs do: IPv6 in brackets, IPv4 as inet_aton does, in one to four numbers that are
// decimal, octal or hexadecimal, the last of which fills what is left.
func parseIP(s string) (ip netip.Addr, ok bool) {
	if inside, v6 := strings.CutPrefix(s, "["); v6 {
		inside, closed := strings.CutSuffix(inside, "]")
		ip, err := netip.ParseAddr(inside)
		return ip.Unmap(), closed && err == nil && ip.Is6() && ip.Zone() == ""
	}
	parts := strings.Split(s, ".")
	last := len(parts) - 1
	if last > 3 {
		return ip, false
	}
	all := uint64(0)
	for i, part := range parts {
		n, err := parseNumber(part)
		most, shift := uint64(0xff), 24-8*i
		if i == last {
			most, shift = 1<<(32-8*i)-1, 0
		}
		if err != nil || n > most {
			return ip, false
		}
		all |= n << shift
	}
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)}), true
}

func parseNumber(s string) (uint64, error) {
	switch {
	case strings.HasPrefix(s, "0x"):
		return strconv.ParseUint(s[2:], 16, 64)
	case strings.HasPrefix(s, "0") && s != "0":
		return strconv.ParseUint(s[1:], 8, 64)
	}
	return strconv.ParseUint(s, 10, 64)
}

// specialAddresses are those that net/netip calls global unicast and that lead into a private or no network: the
// registries for special purposes, RFC 6890, and what carries an IPv4 address inside.
var specialAddresses = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
	"3fff::/20", "5f00::/16", "fec0::/10")

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// Public says whether an address is one of the internet's. Those of cloud metadata services are link-local or private.
func Public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(specialAddresses, func(p netip.Prefix) bool {
		return p.Contains(a)
	})
}

// private says why no command reaches a host, "" when that is for rules and people to say.
func (a Address) private() string {
	ip, err := netip.ParseAddr(a.Host)
	if err == nil && !Public(ip) || err != nil && privateName(a.Host) {
		return display.Quote(a.Host) + " is not a public host, and commands reach no other"
	}
	return ""
}

// hostPattern is the pattern of a rule for network.
type hostPattern struct {
	host  string // without *. in front
	below bool   // the names that end in it, not it
	port  uint16 // 0 when it names none
}

// parseHostPattern reads api.example.org, *.example.org or git.example.org:22.
func parseHostPattern(s string, allow bool) (p hostPattern, wrong *SyntaxError) {
	at := func(column int, err error) *SyntaxError { return &SyntaxError{column, err.Error()} }
	host, port := splitPort(s)
	if host != s {
		n, err := parsePort(port)
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
	if p.host, err = parseHost(name); err != nil {
		return p, at(len(host)-len(name)+1, err)
	}
	if _, err := netip.ParseAddr(p.host); err == nil && p.below {
		return p, &SyntaxError{1, "a * stands before names, and no name ends in an IP address"}
	}
	if cause := (Address{Host: p.host}).private(); cause != "" && allow {
		return p, &SyntaxError{1, cause}
	}
	return p, nil
}

// matches says whether a rule is about an address. One that names no port is about every port when it denies or asks,
// and about the web's when it allows; a name in other letters, which may look like another, is allowed only by itself.
func (p hostPattern) matches(a Address, allow bool) bool {
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
	at, err := ParseAddress(e.ask.Address)
	if err != nil {
		return Verdict{Action: Deny, Reason: err.Error()}
	}
	if cause := at.private(); cause != "" {
		return Verdict{Action: Deny, Reason: cause}
	}
	types := []string{"network"}
	if v, done := e.forbid(types, func(r *compiledRule) bool {
		return r.everything() || r.host.matches(at,
			false)
	}); done {
		return v
	}
	return e.permit(types, "", func(r *compiledRule) bool { return r.host.matches(at, true) })
}
