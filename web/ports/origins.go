package ports

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
)

// A port of a chat has an origin of its own for each account: a host name such as 3000-0123456789abcdef.localhost. So
// absolute links, cookies and storage of what is served there work, and it shares none of them with us or with another
// port. A browser gets in with a ticket, which it exchanges once for a cookie of that host. Our API takes no cookies,
// so no origin can use them there.

const (
	portPlaceholder = "{port}"
	portTicketPath  = "/.pocketcoder/" // the only path that we serve under these hosts
	portTicketLasts = 10 * time.Minute
	portCookieLasts = 12 * time.Hour
	portCookie      = "pocketcoder-port"
	portCookieTLS   = "__Host-pocketcoder-port" // no other host can set a cookie of that name, which takes TLS
)

// CheckPortsURL returns an error unless template is a URL whose host begins with "{port}.".
func CheckPortsURL(template string) error {
	scheme, rest, _ := strings.Cut(template, "://"+portPlaceholder+".")
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || scheme != "http" && scheme != "https" || u.Hostname() == "" || strings.Contains(rest, "{") ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("want a URL such as https://{port}.example.org, got %q", template)
	}
	return nil
}

// portAccess is the access that a ticket or a cookie permits.
type portAccess struct {
	chat    string
	port    int
	account string // empty for the operator
	login   string // token of the account; it must still be valid
	expires time.Time
}

// label is the first part of the host name of the port. It stays the same, so that a browser keeps what the page
// stored.
func (v portAccess) label() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{v.chat, strconv.Itoa(v.port), v.account}, "\n")))
	return strconv.Itoa(v.port) + "-" + hex.EncodeToString(sum[:8])
}

// origins has the valid tickets and cookies. They end with the process. The zero value is ready.
type origins struct {
	mu               sync.Mutex
	tickets, cookies map[string]portAccess
}

// maxVisitors is the largest number of tickets, and of cookies, of one account. A new one replaces the one that
// expires first.
const maxVisitors = 100

// open returns the address under which one browser gets in; empty without a template.
func (o *origins) open(template string, v portAccess) string {
	if template == "" {
		return ""
	}
	v.expires = time.Now().Add(portTicketLasts)
	o.mu.Lock()
	defer o.mu.Unlock()
	ticket := storeAccess(&o.tickets, v)
	return strings.TrimSuffix(strings.Replace(template, portPlaceholder, v.label(), 1), "/") + portTicketPath + ticket
}

// storeAccess stores the access of a visitor under a new secret.
func storeAccess(all *map[string]portAccess, v portAccess) (secret string) {
	if *all == nil {
		*all = map[string]portAccess{}
	}
	own, oldest := 0, ""
	for id, other := range *all {
		switch {
		case time.Now().After(other.expires):
			delete(*all, id)
		case other.account == v.account:
			if own++; oldest == "" || other.expires.Before((*all)[oldest].expires) {
				oldest = id
			}
		}
	}
	if own >= maxVisitors {
		delete(*all, oldest)
	}
	secret = rand.Text()
	(*all)[secret] = v
	return secret
}

// exchange uses up a ticket for the host with a label and returns a cookie.
func (o *origins) exchange(ticket, label string) (cookie string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.tickets[ticket]
	if !ok || v.label() != label || time.Now().After(v.expires) {
		return "", false
	}
	delete(o.tickets, ticket)
	v.expires = time.Now().Add(portCookieLasts)
	return storeAccess(&o.cookies, v), true
}

// visitor returns the access that the cookies of a request give to the host with a label.
func (o *origins) visitor(r *http.Request, label string) (portAccess, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range r.Cookies() {
		if v, ok := o.cookies[c.Value]; ok && ownPortCookie(c.Name) && v.label() == label && time.Now().Before(v.expires) {
			return v, true
		}
	}
	return portAccess{}, false
}

func ownPortCookie(name string) bool { return name == portCookie || name == portCookieTLS }

// portLabel is what the hosts of ports begin with.
var portLabel = regexp.MustCompile(`^[0-9]{1,5}-[0-9a-f]{16}$`)

// labelOf returns the label of the port whose origin a host is.
func (s *Ports) labelOf(host string) (label string, ok bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, domain, ok := strings.Cut(s.URL, portPlaceholder+".")
	if !ok {
		return "", false
	}
	domain, _, _ = strings.Cut(domain, "/")
	domain, _, _ = strings.Cut(domain, ":")
	label, ok = strings.CutSuffix(strings.ToLower(host), "."+strings.ToLower(domain))
	return label, ok && portLabel.MatchString(label)
}

// PortOrigins serves the host names of ports, and passes requests for other hosts to next.
func (s *Ports) PortOrigins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		label, ok := s.labelOf(r.Host)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		w = api.NewDeadlineWriter(w)
		if err := s.servePortOrigin(w, r, label); err != nil && r.Context().Err() == nil {
			api.WriteProblem(w, api.ProblemOf(err))
		}
	})
}

func (s *Ports) servePortOrigin(w http.ResponseWriter, r *http.Request, label string) error {
	if foreign(r) {
		return api.Forbidden("Requests from another origin are not allowed.")
	}
	v, known := s.origins.visitor(r, label)
	if ticket, is := strings.CutPrefix(r.URL.Path, portTicketPath); is {
		return s.enterPort(w, r, label, ticket, known)
	}
	if !known {
		return api.Problem{Status: http.StatusUnauthorized,
			Message: "This browser has no access to this port, or its access has expired. Get a new address with: pocketcoder ports CHAT PORT"}
	}
	since := s.API.Model.Seq() // before the caller's access is checked
	caller, err := s.callerOf(r, v)
	if err != nil {
		return err
	}
	api.BoundBody(w, r, caller)
	if v.account != "" {
		ctx, cancel := s.API.WhileAllowed(r, caller, v.chat, since, func() error {
			return s.API.PersonMayWrite(r, caller,
				v.chat)
		})
		defer cancel()
		r = r.WithContext(ctx)
	}
	return s.proxyPort(w, r, v.chat, v.port, v.rewrite, v.confine)
}

// enterPort exchanges a ticket for a cookie.
func (s *Ports) enterPort(w http.ResponseWriter, r *http.Request, label, ticket string, known bool) error {
	if r.Method != http.MethodGet {
		return api.NotFound()
	}
	cookie, ok := s.origins.exchange(ticket, label)
	if !ok && !known {
		return api.Problem{Status: http.StatusUnauthorized,
			Message: "This address has been used or has expired. Get a new one with: pocketcoder ports CHAT PORT"}
	}
	h := w.Header()
	if ok {
		c := http.Cookie{Name: portCookie, Value: cookie, Path: "/", MaxAge: int(portCookieLasts / time.Second),
			HttpOnly: true, SameSite: http.SameSiteLaxMode}
		if strings.HasPrefix(s.URL, "https:") {
			c.Name, c.Secure = portCookieTLS, true
		}
		http.SetCookie(w, &c)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Location", "/")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// callerOf returns the account of a visitor, if it may still reach the ports of the chat. The operator may reach all.
func (s *Ports) callerOf(r *http.Request, v portAccess) (api.Caller, error) {
	if v.account == "" {
		chat, found, err := s.API.Model.Chat(r.Context(), v.chat)
		if err == nil && (!found || chat.Removed) {
			err = api.NotFound()
		}
		return api.Caller{Identity: &account.Identity{Role: account.Admin, Collection: account.Superusers}}, err
	}
	identity, err := s.API.Accounts.Check(v.login)
	if err != nil {
		return api.Caller{}, api.Unauthorized()
	}
	caller := api.Caller{Identity: &identity}
	return caller, s.API.PersonMayWrite(r, caller, v.chat)
}

// foreign reports whether a page of another origin makes a request. Navigation of the browser is allowed.
func foreign(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		if origin != "http://"+r.Host && origin != "https://"+r.Host {
			return true
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" ||
		r.Header.Get("Sec-Fetch-Dest") != "document"
}

// rewrite makes the request to the command, without our cookie.
func (v portAccess) rewrite(p *httputil.ProxyRequest) {
	host := net.JoinHostPort("localhost", strconv.Itoa(v.port))
	out := p.Out
	out.URL.Scheme, out.URL.Host, out.Host = "http", host, host
	out.URL.RawQuery = p.In.URL.RawQuery
	out.Header.Del("Proxy-Authorization")
	out.Header.Del("Referer") // it names a host that the server does not know
	if out.Header.Get("Origin") != "" {
		out.Header.Set("Origin", "http://"+host)
	}
	out.Header.Del("Cookie")
	for _, c := range p.In.Cookies() {
		if !ownPortCookie(c.Name) {
			out.AddCookie(c)
		}
	}
}

// beyondOrigin are headers with which an answer could affect more than its own origin, later answers of its origin, or
// a proxy in front of us.
var beyondOrigin = []string{
	"Clear-Site-Data", "Strict-Transport-Security", "Public-Key-Pins", "Public-Key-Pins-Report-Only", "Expect-CT",
	"Alt-Svc", "Nel", "Report-To",
	"Reporting-Endpoints", "Service-Worker-Allowed", "Proxy-Authenticate", "X-Sendfile", "X-Lighttpd-Send-File",
	"Set-Cookie2",
}

// confine removes from an answer what affects more than its origin.
func (v portAccess) confine(answer *http.Response) error {
	h := answer.Header
	removeHeaders(h, beyondOrigin)
	cookies := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, c := range cookies {
		if own, ok := hostCookie(c); ok {
			h.Add("Set-Cookie", own)
		}
	}
	h.Add("Content-Security-Policy", "frame-ancestors 'self'")
	h.Set("Cache-Control", "private, no-cache") // a proxy must not serve it to another user
	if to := h.Get("Location"); to != "" {
		h.Set("Location", portRequest{port: v.port}.location(to))
	}
	return nil
}

// hostCookie returns a Set-Cookie line without Domain, so that the cookie is for this host alone. It refuses a cookie
// with our name.
func hostCookie(line string) (string, bool) {
	parts := strings.Split(line, ";")
	name, _, _ := strings.Cut(parts[0], "=")
	rest := parts[:1]
	for _, attribute := range parts[1:] {
		key, _, _ := strings.Cut(attribute, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "domain") {
			rest = append(rest, attribute)
		}
	}
	return strings.Join(rest, ";"), !ownPortCookie(strings.TrimSpace(name))
}
