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

// Address is the address of a connection: a host name in lower case without a final dot, or an IP address as netip
// writes it, and a port.
type Address struct {
	Host string
	Port uint16
}

// String returns host:port, with an IPv6 address in brackets.
func (a Address) String() string { return Bracketed(a.Host) + ":" + strconv.Itoa(int(a.Port)) }

// Bracketed returns a host with brackets around an IPv6 address.
func Bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func (a Address) Web() bool { return a.Port == 80 || a.Port == 443 }

// ParseAddress parses host:port in any spelling; the default port is 443. It returns an error, a sentence, for an
// address that may not be what a person sees.
func ParseAddress(s string) (a Address, err error) {
	if cause := display.Misleading(s, false); cause != "" {
		return a, errors.New("the address cannot be trusted: " + cause)
	}
	host, port := SplitPort(s)
	a.Port = 443
	if host != s {
		if a.Port, err = parsePort(port); err != nil {
			return a, err
		}
	}
	a.Host, err = parseHost(host)
	return a, err
}

// parsePort parses a port other than 0.
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

// parseHost parses a host name or an IP address, and returns it in the form of Address.
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

// parseIP parses an IP address as programs do: IPv6 in brackets, IPv4 as inet_aton does, with one to four numbers in
// decimal, octal or hexadecimal. The last number fills the rest.
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

// IsPublic reports whether an address is on the internet. Addresses of cloud metadata services are link-local or
// private.
func IsPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(specialAddresses, func(p netip.Prefix) bool {
		return p.Contains(a)
	})
}

// Private returns why no command may reach the host, "" if rules and people decide.
func (a Address) Private() string {
	ip, err := netip.ParseAddr(a.Host)
	if err == nil && !IsPublic(ip) || err != nil && isPrivateName(a.Host) {
		return display.Quote(a.Host) + " is not a public host, and commands reach no other"
	}
	return ""
}

// SplitPort splits a port off. A colon in brackets is part of an IPv6 address.
func SplitPort(authority string) (host, port string) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || i < strings.LastIndexByte(authority, ']') {
		return authority, ""
	}
	return authority[:i], authority[i+1:]
}

// isPrivateName reports whether a name cannot be that of a public host.
func isPrivateName(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last == host || slices.Contains([]string{"localhost", "local", "internal", "lan", "home", "intranet"}, last) ||
		strings.HasSuffix(host, ".home.arpa") || strings.HasSuffix(host, ".nip.io") || strings.HasSuffix(host, ".sslip.io")
}
