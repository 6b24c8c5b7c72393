package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/hostport"
	"pocketcoder/handlers/policy/program"
)

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
	u.host, u.port = hostport.SplitPort(authority)
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
	case hostport.PrivateName(host):
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
	u.host, u.port = hostport.SplitPort(strings.ToLower(authority))
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
