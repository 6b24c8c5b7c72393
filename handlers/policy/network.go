package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/bash"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/program"
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
	host, port := SplitPort(s)
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
	if cause := (Address{Host: p.host}).Private(); cause != "" && allow {
		return p, &SyntaxError{1, cause}
	}
	return p, nil
}

// matches reports whether a rule matches an address. Without a port, a rule that denies or asks matches every port, and
// a rule that allows matches the ports of the web. A name with other letters than ASCII may look like another name, so
// only its exact pattern allows it.
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

// network evaluates a connection of a running command.
func (e *evaluation) network() Verdict {
	at, err := ParseAddress(e.ask.Address)
	if err != nil {
		return Verdict{Action: Deny, Reason: err.Error()}
	}
	types := []string{events.KindNetwork}
	v, done := e.forbid(types, func(r *compiledRule) bool { return r.coversAll() || r.host.matches(at, false) })
	if cause := at.Private(); cause != "" && v.Action != Deny {
		return Verdict{Action: Deny, Reason: cause}
	}
	if done {
		return v
	}
	return e.permit(types, "", func(r *compiledRule) bool { return r.host.matches(at, true) })
}

// NamedHosts returns the public addresses in the text of a command to which it will connect, each once, and reports
// whether it runs a program that needs a network. It does not find hosts in variables or scripts.
func NamedHosts(command string) (named []Address, needs bool) {
	for _, words := range bash.Parse(command).All {
		urls, connects := program.NetworkUse(words)
		needs = needs || connects
		for _, s := range urls {
			u, cause := readURL(s)
			if cause != "" {
				continue
			}
			at, err := ParseAddress(u.host + ":" + u.port)
			if err == nil && at.Private() == "" && !slices.Contains(named, at) {
				named = append(named, at)
			}
		}
	}
	return named, needs
}

var standardPorts = map[string]string{"http": "80", "https": "443"}

// webURL is a parsed URL, or a parsed pattern of URLs.
type webURL struct {
	scheme, host, port string
	path               string // with the query and fragment
}

// hostLabels matches the host of an ordinary URL: names, or an IPv6 address in brackets.
var hostLabels = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*|\[[0-9a-f:.]+\])$`)

// readURL parses a URL. cause is why a person may take it for another one.
func readURL(s string) (u webURL, cause string) {
	if cause := display.Misleading(s, false); cause != "" {
		return u, "the address cannot be trusted: " + cause
	}
	scheme, rest, ok := strings.Cut(s, "://")
	u.scheme = strings.ToLower(scheme)
	if !ok || u.scheme != "https" && u.scheme != "http" {
		return u, display.Quote(s) + " is not an http or https address"
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	u.path = rest[end:]
	if _, err := url.Parse(s); err != nil || strings.ContainsAny(s, `\ `) {
		return u, display.Quote(s) + " is not a plain address"
	}
	authority := strings.ToLower(rest[:end])
	u.host, u.port = SplitPort(authority)
	if !hostLabels.MatchString(u.host) || strings.Trim(u.port, "0123456789") != "" {
		return u, display.Quote(rest[:end]) + " is not the plain name of a host"
	}
	u.port = cmp.Or(u.port, standardPorts[u.scheme])
	if parentSegments.MatchString(u.path) {
		return u, display.Quote(u.path) + " goes up in the path"
	}
	return u, ""
}

// parentSegments matches path segments that go up, also encoded ones, and encoded separators.
var parentSegments = regexp.MustCompile(`(?i)(^|/)(\.|%2e){1,2}(/|$|\?|#)|%2f|%5c|%00`)

// privateCause returns why a host is not public. It accepts addresses in any numeric notation.
func (u webURL) privateCause() string {
	host := strings.Trim(u.host, "[]")
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := netip.ParseAddr(host)
	switch {
	case err == nil, strings.HasPrefix(last, "0x"), strings.Trim(last, "0123456789") == "":
		return display.Quote(u.host) + " is a number, not a name"
	case isPrivateName(host):
		return display.Quote(u.host) + " is not a public host"
	}
	return ""
}

// parseURLPattern parses the pattern of a webfetch rule: a URL whose host may have * as whole labels, and whose path
// may have *.
func parseURLPattern(s string) (u webURL, wrong *SyntaxError) {
	scheme, rest, ok := strings.Cut(s, "://")
	u.scheme = strings.ToLower(scheme)
	if !ok || u.scheme != "https" && u.scheme != "http" {
		return u, &SyntaxError{1, "want an address such as https://docs.example.org/*"}
	}
	at := utf8.RuneCountInString(scheme) + 4
	authority, p, _ := strings.Cut(rest, "/")
	u.path = "/" + p
	if !strings.Contains(rest, "/") {
		u.path = ""
	}
	u.host, u.port = SplitPort(strings.ToLower(authority))
	u.port = cmp.Or(u.port, standardPorts[u.scheme])
	labels := strings.Split(u.host, ".")
	for i, label := range labels {
		switch {
		case label == "*" && i < len(labels)-2:
		case strings.Contains(label, "*"):
			return u, &SyntaxError{at, "in a host a * stands for one whole name, before the last two: https://*.example.com/*"}
		}
		at += utf8.RuneCountInString(label) + 1
	}
	if !hostLabels.MatchString(strings.ReplaceAll(u.host, "*", "x")) || strings.Trim(u.port, "0123456789") != "" {
		return u, &SyntaxError{utf8.RuneCountInString(scheme) + 4,
			fmt.Sprintf("%s is not the plain name of a host", display.Quote(authority))}
	}
	return u, nil
}

// matches compares a URL with the pattern: scheme and port exactly, the host by label, the path with *.
func (p webURL) matches(u webURL) bool {
	if p.scheme != u.scheme || p.port != u.port || !p.matchesHost(u.host) {
		return false
	}
	path := u.path
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	pattern := cmp.Or(p.path, "/")
	return program.Glob(pattern, path)
}

// forbids compares a URL with the pattern of a rule that denies or asks. It ignores the scheme, the case, and a port
// that the pattern does not name. A * in the host stands for any names. A pattern without a path is for the whole host.
func (p webURL) forbids(u webURL) bool {
	if p.port != u.port && p.port != standardPorts[p.scheme] || !program.Glob(p.host, u.host) {
		return false
	}
	pattern, path := strings.ToLower(cmp.Or(p.path, "/*")), strings.ToLower("/"+strings.TrimPrefix(u.path, "/"))
	plain, err := url.PathUnescape(path)
	return program.Glob(pattern, path) || err == nil && program.Glob(pattern, plain)
}

// allows reports whether a rule may allow a URL. A host that is not public needs a rule that names it exactly.
func (p webURL) allows(u webURL) bool {
	return u.privateCause() == "" ||
		p.host == u.host && (u.host == "localhost" || u.host == "127.0.0.1" || u.host == "[::1]")
}

func (p webURL) matchesHost(host string) bool {
	want, labels := strings.Split(p.host, "."), strings.Split(host, ".")
	if len(want) != len(labels) {
		return false
	}
	for i, label := range labels {
		if want[i] != label && (want[i] != "*" || strings.HasPrefix(label, "xn--")) {
			return false
		}
	}
	return true
}
