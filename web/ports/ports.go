// Package ports serves the ports of background commands to browsers and other clients.
//
// Promises: a port is for the owner of its chat and for administrators, not for agents. Access ends with the login,
// and with the right to the chat. A served page shares no origin, cookie or storage with the API. Our tokens and
// cookies never reach the command. Tickets and cookies live in memory, at most a fixed number for each account. A
// served page cannot register a service worker, so it does not answer for what is served at the port later.
//
// It must not know how a command's network is isolated: Dial connects.
package ports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/exec"
	"pocketcoder/web/api"
)

const portOfChat = "/api/chats/{id}/ports/{port}"

// ticketLasts is how long a ticket in a path is valid.
const ticketLasts = time.Hour

// Ports serves the ports of commands that run in the background.
type Ports struct {
	API *api.Server
	// of the origins of ports, such as http://{port}.localhost:8090; empty for none. See CheckPortsURL
	URL string
	// exec.ErrNotServed when nothing serves there
	Dial func(ctx context.Context, chat string, port int) (net.Conn, error)

	tickets tickets
	origins origins
}

func (s *Ports) Routes() []api.Route {
	return []api.Route{
		{Method: "POST", Path: portOfChat, About: "A path, good for an hour, under which a browser reaches what the chat's commands serve at a port.", Access: api.Accounts, Answer: portAnswer{}, Serve: s.openPort},
		{Method: api.AnyMethod, Path: portOfChat + "/{path...}", About: "What a command that runs in the background serves at a port of its own, whatever the method; WebSockets too.", Access: api.Accounts, Media: "*/*", Serve: s.servePort},
	}
}

// Ticket returns the login that the ticket in the path of a request stands for.
func (s *Ports) Ticket(r *http.Request) (token string, found bool) {
	if !HasTicket(r.URL.Path) {
		return "", false
	}
	return s.tickets.Login(r.URL.Path), true
}

// HasTicket reports whether a path has a ticket. Then only the ticket identifies the caller, whatever page makes the
// request.
func HasTicket(path string) bool { return parsePath(path).Ticket != "" }

type portAnswer struct {
	Path string `json:"path"`
	// of the port's own origin, good for one browser within ten minutes; absent when there is none
	URL     string `json:"url,omitempty"`
	Expires string `json:"expires"` // of path: 2006-01-02 15:04:05.000Z
}

// openPort answers with the addresses of a port of a chat.
func (s *Ports) openPort(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	login, _ := s.API.TokenOf(r)
	answer, err := s.open(r, caller, login)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, answer)
}

// Address returns where a browser reaches the port that a path names: the port's own origin if it has one. login is
// the caller's token.
func (s *Ports) Address(r *http.Request, caller api.Caller, login string) (string, error) {
	answer, err := s.open(r, caller, login)
	return cmp.Or(answer.URL, answer.Path), err
}

// open returns the addresses of the port that a path names.
func (s *Ports) open(r *http.Request, caller api.Caller, login string) (answer portAnswer, err error) {
	chat, port := r.PathValue("id"), r.PathValue("port")
	number, err := s.portOf(r, caller)
	if err != nil {
		return answer, err
	}
	if caller.IsOperator { // a ticket stands for a login
		return s.openForOperator(portAccess{chat: chat, port: number})
	}
	expires := time.Now().Add(ticketLasts)
	if caller.Expires.Before(expires) {
		expires = caller.Expires
	}
	id, err := s.tickets.Add(ticket{Chat: chat, Port: port, Account: caller.Account, Login: login,
		Expires: expires})
	if err != nil {
		return answer, api.Problem{Status: http.StatusTooManyRequests, Message: "Too many links to ports are valid. Try again later.",
			Retry: time.Minute}
	}
	return portAnswer{
		Path:    "/api/chats/" + chat + "/ports/" + port + "/" + id + "/",
		URL:     s.origins.open(s.URL, portAccess{chat: chat, port: number, account: caller.Account, login: login}),
		Expires: events.FormatTime(expires),
	}, nil
}

// openForOperator returns the address of a port's own origin, good for one browser.
func (s *Ports) openForOperator(of portAccess) (answer portAnswer, err error) {
	if s.URL == "" {
		return answer, handlers.Refuse(handlers.Conflict, "Ports have no host names here. Start PocketCoder with "+
			"--ports-url, such as https://{port}.example.org.")
	}
	answer.URL = s.origins.open(s.URL, of)
	return answer, nil
}

// portOf returns the port that a path names, if the caller may reach the ports of the chat.
func (s *Ports) portOf(r *http.Request, caller api.Caller) (int, error) {
	if err := s.API.PersonMayWrite(r, caller, r.PathValue("id")); err != nil {
		return 0, err
	}
	text := r.PathValue("port")
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != text {
		return 0, api.BadField("port", "validation_invalid_value", "want a port from 1 to 65535, got %q",
			api.Truncate(text, 40))
	}
	return int(port), nil
}

// servePort passes a request to a port of a chat, and the answer back.
func (s *Ports) servePort(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	since := s.API.Model.Seq() // before the caller's access is checked
	port, err := s.portOf(r, caller)
	if err != nil {
		return err
	}
	p := parsePath(r.URL.EscapedPath())
	if p.Ticket != "" && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		allowAnyOrigin(w.Header(), r)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	inside, err := url.ParseRequestURI(p.Rest)
	if err != nil {
		return api.NotFound()
	}
	visit := portRequest{path: p, port: port, inside: inside}
	ctx, cancel := s.API.WhileAllowed(r, caller, p.Chat, since, func() error {
		return s.API.PersonMayWrite(r, caller, p.Chat)
	})
	defer cancel()
	return s.proxyPort(w, r.WithContext(ctx), p.Chat, port, visit.rewrite, visit.confine)
}

// proxyPort passes a request to a port of a chat.
func (s *Ports) proxyPort(w http.ResponseWriter, r *http.Request, chat string, port int,
	rewrite func(*httputil.ProxyRequest), confine func(*http.Response) error) error {
	if isServiceWorker(r) {
		return api.Forbidden("A page that is served at a port cannot register a service worker: " +
			"it would stay active for other programs at this port.")
	}
	var failed error
	proxy := &httputil.ReverseProxy{
		Rewrite: rewrite, ModifyResponse: confine, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(s.API.Logger.Handler(), slog.LevelDebug),
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, chat, port) },
			// A connection is one command's: the next request may be for another.
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	h := w.Header()
	ours := h.Clone()
	clear(h) // confine would otherwise add to it
	proxy.ServeHTTP(finalWriter{w}, r)
	if failed == nil {
		return nil
	}
	maps.Copy(h, ours)
	if errors.As(failed, new(*http.MaxBytesError)) {
		return failed
	}
	if errors.Is(failed, exec.ErrNotServed) {
		return api.Problem{Status: http.StatusNotFound, Message: fmt.Sprintf("Nothing can be reached at port %d: %v.", port,
			failed)}
	}
	return api.Problem{Status: http.StatusBadGateway,
		Message: fmt.Sprintf("What serves port %d does not answer as a web server does.", port)}
}

// isServiceWorker reports whether a browser fetches the script of a service worker, to register or to update it. No
// script can set or remove these headers.
func isServiceWorker(r *http.Request) bool {
	return r.Header.Get("Service-Worker") != "" || r.Header.Get("Sec-Fetch-Dest") == "serviceworker"
}

type portRequest struct {
	path   portPath
	port   int
	inside *url.URL
}

// rewrite makes the request to the command, without any of our credentials.
func (v portRequest) rewrite(p *httputil.ProxyRequest) {
	host := net.JoinHostPort("localhost", strconv.Itoa(v.port))
	out := p.Out
	out.URL.Scheme, out.URL.Host, out.Host = "http", host, host
	out.URL.Path, out.URL.RawPath, out.URL.RawQuery = v.inside.Path, v.inside.RawPath, p.In.URL.RawQuery
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "Referer"} {
		out.Header.Del(name)
	}
	if out.Header.Get("Origin") != "" {
		out.Header.Set("Origin", "http://"+host) // development servers take WebSockets of their own pages only
	}
	out.Header.Set("X-Forwarded-Prefix", v.path.Prefix)
}

// portPolicy gives a page an opaque origin: its scripts run, but reach nothing of ours. So the page has no cookies
// and no storage, and must load its files by relative paths or below X-Forwarded-Prefix.
const portPolicy = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads; frame-ancestors 'self'"

// ofOrigin are headers that affect the whole origin, which is ours, or a proxy in front of us.
var ofOrigin = []string{
	"Set-Cookie", "Set-Cookie2", "Clear-Site-Data", "Strict-Transport-Security", "Public-Key-Pins",
	"Public-Key-Pins-Report-Only", "Expect-CT", "Alt-Svc",
	"Service-Worker-Allowed", "Nel", "Report-To", "Reporting-Endpoints", "Origin-Agent-Cluster", "Accept-CH",
	"Critical-CH", "WWW-Authenticate",
	"Proxy-Authenticate", "Refresh", "Referrer-Policy", "X-Content-Type-Options", "X-Frame-Options", "X-Sendfile",
	"X-Lighttpd-Send-File",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Headers",
	"Access-Control-Allow-Methods", "Cache-Control",
}

// confine changes an answer so that it is harmless under our origin.
func (v portRequest) confine(answer *http.Response) error {
	h := answer.Header
	removeHeaders(h, ofOrigin)
	h["Content-Security-Policy"] = append([]string{portPolicy}, h["Content-Security-Policy"]...)
	h.Set("Referrer-Policy", "no-referrer") // the ticket is in the path
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if v.path.Ticket != "" {
		allowAnyOrigin(h, answer.Request)
	}
	if to := h.Get("Location"); to != "" {
		h.Set("Location", v.location(to))
	}
	return nil
}

// removeHeaders removes the named headers, and those that a proxy in front of us obeys.
func removeHeaders(h http.Header, names []string) {
	for _, name := range names {
		h.Del(name)
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.HasPrefix(name, "X-Accel-") })
}

// allowAnyOrigin lets the page read the files that it loads. Its origin is opaque, and the ticket is the credential.
func allowAnyOrigin(h http.Header, r *http.Request) {
	h.Set("Access-Control-Allow-Origin", "*")
	if r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
	if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
}

// location maps the target of a redirect to our path. A redirect to another server stays as it is.
func (v portRequest) location(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return to
	}
	if host := u.Hostname(); host != "" && (u.Port() != strconv.Itoa(v.port) || host != "localhost" &&
		host != "127.0.0.1") {
		return to
	}
	if u.Host == "" && !strings.HasPrefix(u.Path, "/") {
		return to
	}
	u.Scheme, u.Host = "", ""
	if strings.HasPrefix(u.Path+"/", v.path.Prefix+"/") { // the server uses X-Forwarded-Prefix
		return u.String()
	}
	return v.path.Prefix + "/" + strings.TrimPrefix(u.String(), "/")
}

// finalWriter drops informational (1xx) answers: they are not checked.
type finalWriter struct{ http.ResponseWriter }

func (f finalWriter) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f finalWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(status)
	}
}
