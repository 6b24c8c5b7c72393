// Package egress is the only way out of the sandbox: an HTTP proxy (CONNECT, and http:// in absolute form) in the
// control plane. Commands, MCP servers and OpenCode reach hosts through it.
//
// Every command and every MCP server has its own credentials, which are valid while it runs. Without valid credentials
// the answer is always 407. Package network decides each connection. A connection that needs a person waits for two
// minutes and is then refused. The answer says that the command may try again.
//
// Promises: the proxy dials the host that the decision names, in the same spelling. It resolves a name once, after the
// decision, and checks each address when it dials. It reaches only public addresses of other machines, and private IP
// addresses that an operator or an administrator named. It adds no header to a request, and removes the credentials and
// the headers of a single connection. Bodies are streamed. A connection ends with its command, after 5 minutes without
// data, and after 6 hours. A client has 10 seconds for its first request, and for each next one. At most 1024
// connections are open; others wait until one has ended. The status line of a refusal holds the reason too, because
// programs show nothing else of an answer to CONNECT.
//
// The proxy does not inspect tunnels: a command can send any data to a host that it may reach. OpenCode does not have
// the keys of its providers. It sends its requests to them in plain text to the proxy, which inserts the key and
// encrypts them.
//
// It must not know how permissions are requested or stored.
package egress

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"pocketcoder/handlers"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/policy"
)

// Limits of a connection.
const (
	decisionTime = 2 * time.Minute // for a person's decision
	dialTime     = 15 * time.Second
	requestTime  = 10 * time.Second // for a request to arrive
	idleTime     = 5 * time.Minute
	longest      = 6 * time.Hour
	maxHeader    = 64 << 10                    // bytes of the header of a request or response
	maxOpen      = 16 * network.MaxConnections // of all commands
)

// Server is the proxy. Only the exported fields must be set.
type Server struct {
	Network *network.Sandbox
	Engines func() []Engine  // those of OpenCode itself that run; nil for none
	Servers *network.Servers // nil without MCP servers
	Logger  *slog.Logger
	Roots   *x509.CertPool // trusted certificates for requests with a provider's key; nil for the system's

	// Direct means that Engine.Own also answers requests without credentials of the proxy, because OpenCode without
	// isolation uses no proxy
	Direct bool

	resolver        *net.Resolver     // nil for the system's
	redirects       map[string]string // in tests: other addresses to dial, without checks
	decisionTimeout time.Duration     // 0 for decisionTime
	idleTimeout     time.Duration     // 0 for idleTime
	maxOpen         int               // 0 for maxOpen
	requestTimeout  time.Duration     // 0 for requestTime
}

// Engine is the network access of one OpenCode.
type Engine struct {
	*network.Engine
	Own Own // answers its requests to OwnHost; nil for none
}

// Own answers the requests of one OpenCode, and checks their secret.
type Own interface {
	http.Handler
	Accepts(*http.Request) bool // reports whether a request has the secret
}

func (s *Server) engines() []Engine {
	if s.Engines == nil {
		return nil
	}
	return s.Engines()
}

// Serve serves until ctx ends, and then closes all connections.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	within := cmp.Or(s.requestTimeout, requestTime)
	server := &http.Server{
		Handler: http.HandlerFunc(s.handle), BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ReadHeaderTimeout: within, IdleTimeout: within, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ErrorLog: s.debugLog(),
	}
	stop := context.AfterFunc(ctx, func() {
		cancel()
		server.Close()
	})
	defer stop()
	if err := server.Serve(limit(l, cmp.Or(s.maxOpen, maxOpen), cmp.Or(s.idleTimeout, idleTime))); !errors.Is(err,
		http.ErrServerClosed) {
		return fmt.Errorf("serve egress proxy: %w", err)
	}
	return ctx.Err()
}

// connKey is the context key of a request's connection.
type connKey struct{}

// debugLog returns the logger for net/http's messages about clients and hosts that violate the protocol.
func (s *Server) debugLog() *log.Logger {
	return slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug)
}

// client is the owner of a request's credentials: a command, OpenCode itself, or an MCP server.
type client interface {
	Begin(context.Context) (connection context.Context, end func(), ok bool)
	CheckAddress(ctx context.Context, address string) (policy.Address, error)
	Private(policy.Address) bool
	RecordBlocked(ctx context.Context, at policy.Address, why error) error
}

// OwnHost is the host name with which OpenCode reaches Own through the proxy. It does not exist in the DNS.
const OwnHost = "pocketcoder.internal"

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	x, ok := s.client(r)
	switch {
	case ok:
		s.serve(w, r, x)
	case s.Direct && r.Method != http.MethodConnect && r.URL.Host == "":
		for _, e := range s.engines() {
			if e.Own != nil && e.Own.Accepts(r) {
				serveOwn(w, r, e.Own)
				return
			}
		}
		http.Error(w, "only a running OpenCode may use this server", http.StatusUnauthorized)
	default:
		challenge(w, r)
	}
}

// serveOwn answers a request to OwnHost and closes the connection. An idle connection would be closed after a few
// seconds, perhaps when the client uses it again.
func serveOwn(w http.ResponseWriter, r *http.Request, own Own) {
	w.Header().Set("Connection", "close")
	own.ServeHTTP(w, r)
}

func challenge(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Proxy-Authenticate", `Basic realm="PocketCoder"`)
	w.Header().Set("Connection", "close")
	answer(w, r, http.StatusProxyAuthRequired, "the proxy is for the command it was given to, while that runs")
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, x client) {
	ctx, end, ok := x.Begin(r.Context())
	if !ok {
		if _, ok := s.client(r); !ok { // the client has ended meanwhile
			challenge(w, r)
			return
		}
		answer(w, r, http.StatusTooManyRequests, fmt.Sprintf("at most %d connections may be open at a time",
			network.MaxConnections))
		return
	}
	defer end()
	if e, ok := x.(Engine); ok && e.Own != nil && r.Method != http.MethodConnect && r.URL.Host == OwnHost {
		serveOwn(w, r.WithContext(ctx), e.Own)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	r = r.WithContext(ctx)
	address, err := target(r)
	if err != nil {
		answer(w, r, http.StatusBadRequest, err.Error())
		return
	}
	at, err := s.reach(ctx, x, address)
	if err != nil {
		s.refuse(w, r, address, err)
		return
	}
	c := connection{Server: s, client: x, at: at}
	if r.Method == http.MethodConnect {
		c.tunnel(ctx, w, r)
	} else {
		c.forward(w, r)
	}
}

func (s *Server) reach(ctx context.Context, x client, address string) (policy.Address, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.decisionTimeout, decisionTime))
	defer cancel()
	return x.CheckAddress(ctx, address)
}

// client returns the client with the credentials of a request.
func (s *Server) client(r *http.Request) (client, bool) {
	scheme, encoded, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " ")
	credentials, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil || !strings.EqualFold(scheme, "Basic") {
		return nil, false
	}
	user, token, _ := strings.Cut(string(credentials), ":")
	for _, e := range s.engines() {
		if e.Accepts(user, token) {
			return e, true
		}
	}
	if x, ok := s.Servers.Running(user, token); ok {
		return x, true
	}
	return s.Network.Running(user, token)
}

// target returns the address of a request, as written there.
func target(r *http.Request) (address string, err error) {
	switch {
	case r.URL.User != nil:
		return "", errors.New("an address with a user's name in it is not what it seems to be; send credentials in a header")
	case r.Method == http.MethodConnect && r.RequestURI == r.URL.Host && hasPort(r.URL.Host):
		return r.URL.Host, nil
	case r.Method == http.MethodConnect:
		return "", errors.New("CONNECT wants host:port")
	case r.URL.Scheme != "http" || r.URL.Host == "":
		return "", errors.New("this is a proxy, for CONNECT host:port and for http://host/…")
	case hasPort(r.URL.Host):
		return r.URL.Host, nil
	}
	return r.URL.Host + ":80", nil
}

func hasPort(host string) bool {
	return strings.LastIndexByte(host, ':') > strings.LastIndexByte(host, ']')
}

// refuse answers a request that may not reach its address, with a text for people and models.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, address string, why error) {
	refused, dns := handlers.Refused{}, (*net.DNSError)(nil)
	switch {
	case errors.As(why, &refused):
		answer(w, r, http.StatusForbidden, fmt.Sprintf("%s: %s", address, refused.Text))
	case errors.Is(why, network.ErrWaiting):
		answer(w, r, http.StatusGatewayTimeout, fmt.Sprintf("%s: it still waits for a person to allow it; run the command again when it is allowed", address))
	case errors.As(why, &dns) && dns.IsNotFound:
		answer(w, r, http.StatusBadGateway, fmt.Sprintf("%s: there is no such host", address))
	case r.Context().Err() != nil: // the client has ended
		panic(http.ErrAbortHandler)
	default:
		s.Logger.Warn("host cannot be reached", "address", address, "err", why)
		answer(w, r, http.StatusBadGateway, fmt.Sprintf("%s cannot be reached", address))
	}
}

// answer sends a response of our own. The rest of the request must arrive soon, because net/http reads it before and
// after the response.
func answer(w http.ResponseWriter, r *http.Request, status int, text string) {
	if status == http.StatusBadGateway { // the address is not forbidden
		text = "PocketCoder's proxy: " + text
	} else {
		text = "Blocked by PocketCoder: " + text
	}
	if r.Method != http.MethodConnect {
		expectRest(w, r)
		http.Error(w, text, status)
		return
	}
	challenge := ""
	if c := w.Header().Get("Proxy-Authenticate"); c != "" {
		challenge = "Proxy-Authenticate: " + c + "\r\n"
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(dialTime))
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s\n",
		status, phrase(text), challenge, len(text)+1, text)
}

// expectRest limits the time for the rest of a request.
func expectRest(w http.ResponseWriter, r *http.Request) {
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(server.ReadHeaderTimeout))
	}
}

// phrase makes a text safe for a status line.
func phrase(text string) string {
	text = strings.NewReplacer("“", "'", "”", "'", "…", "...").Replace(text)
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
	return text[:min(len(text), 300)]
}
