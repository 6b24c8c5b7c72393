package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/netrelay"
	"pocketcoder/sandbox/wire"
)

// proxyVariables are the environment variables for an HTTP proxy. The lower-case ones are for curl, which ignores
// HTTP_PROXY.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"}

// proxyEnvironment returns the variables with the address of the proxy. In bubblewrap it is the address in the
// command's own network.
func (w *Worker) proxyEnvironment(r wire.Request) (variables []string) {
	proxy, err := url.Parse(r.Network)
	if r.Network == "" || err != nil || w.config.Isolation.Level == isolation.Landlock {
		return nil // Landlock checks ports, not addresses: other hosts would be reachable on the proxy's port
	}
	if w.config.Isolation.Level == isolation.Bwrap {
		proxy.Host = netrelay.ProxyAddress
	}
	for _, name := range proxyVariables {
		variables = append(variables, name+"="+proxy.String())
	}
	const local = "localhost,127.0.0.1,::1"
	return append(variables, "NO_PROXY="+local, "no_proxy="+local, "NODE_USE_ENV_PROXY=1") // else Node.js uses no proxy
}

// proxyAddress returns host:port of a proxy.
func proxyAddress(network string) (address string, err error) {
	proxy, err := url.Parse(network)
	if err != nil {
		return "", errors.New("the address of the proxy is not a URL") // without the URL, which has a password
	}
	n, err := strconv.ParseUint(proxy.Port(), 10, 16)
	if proxy.Scheme != "http" || proxy.Hostname() == "" || err != nil || n == 0 {
		return "", errors.New("the address of the proxy is not http://host:port")
	}
	return proxy.Host, nil
}

// serveProxy forwards the command's connections to its proxy.
func (c *command) serveProxy(network string, log *slog.Logger) {
	address, err := proxyAddress(network)
	if err == nil {
		err = c.link.Serve(address)
	}
	if err != nil && !isClosed(c.exited) {
		log.Warn("command has no proxy", "exec", c.exec, "err", err)
	}
}

// server is a command whose ports can be reached.
type server struct {
	command *command
	dials   int             // open connections to it
	ctx     context.Context // ends when the command is forgotten
	end     context.CancelFunc
}

// setServing makes the ports of a command reachable until forget.
func (w *Worker) setServing(exec string, c *command) {
	s := &server{command: c}
	s.ctx, s.end = context.WithCancel(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serving[exec] = s
}

// connect opens a connection to a port on the loopback address where the command runs.
func (s *server) connect(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("port %d is out of range", port)
	}
	if s.command.link != nil {
		return s.command.link.Dial(ctx, port)
	}
	err := error(syscall.ECONNREFUSED)
	for _, host := range s.command.hosts(port) {
		var d net.Dialer
		var conn net.Conn
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// Limits of the open connections: to one command, enough for the tabs of a browser; to all commands, few enough to
// leave most of the usual 1,024 descriptors to the commands. Each connection uses one descriptor, and a second one
// while it is made.
const (
	maxConnections       = 64
	maxWorkerConnections = 256
)

// dial connects to a port of a running command, and writes Connected to stderr. It copies r.Input to the port and the
// response to stdout, until the server closes the connection or the command ends. The end of the input closes only the
// sending side.
func (w *Worker) dial(ctx context.Context, r wire.Request, stdout, stderr io.Writer) error {
	s, err := w.addConnection(r.Exec)
	if err != nil {
		return fmt.Errorf("connect to port %d of exec %s: %w", r.Port, r.Exec, err)
	}
	defer w.removeConnection(s)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	conn, err := s.connect(ctx, r.Port)
	if err != nil {
		return fmt.Errorf("connect to port %d of exec %s: %w", r.Port, r.Exec, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(stderr, wire.Connected); err != nil {
		return err
	}
	go func() {
		for in := range r.Input {
			if _, err := conn.Write(in.Data); err != nil {
				return // the response may continue
			}
		}
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		}
	}()
	if _, err := io.Copy(stdout, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) && s.ctx.Err() == nil {
		return fmt.Errorf("read from port %d of exec %s: %w", r.Port, r.Exec, err)
	}
	return nil
}

// addConnection counts a connection to a command, until removeConnection.
func (w *Worker) addConnection(exec string) (*server, error) {
	if w.config.Isolation.Level == isolation.Landlock {
		return nil, errors.New("ports of commands cannot be reached with Landlock: install bubblewrap on the worker's machine")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.serving[exec]
	switch {
	case s == nil:
		return nil, errors.New("it is not running here, or was not started to serve ports")
	case s.dials >= maxConnections:
		return nil, fmt.Errorf("it has %d connections open already", maxConnections)
	case w.dials >= maxWorkerConnections:
		return nil, fmt.Errorf("the worker has %d connections open already", maxWorkerConnections)
	}
	s.dials++
	w.dials++
	return s, nil
}

func (w *Worker) removeConnection(s *server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.dials--
	w.dials--
}

const (
	// how long a shared network is kept after its last command. The next command then starts as fast as the ones before
	loopbackIdle = time.Minute
	// how many networks without commands are kept
	maxIdleLoopbacks = 64
)

// loopbackKey names the commands that share a network. A command without a proxy does not share one with commands that
// have a proxy, because those could pass its connections on.
type loopbackKey struct {
	group string
	proxy bool
}

// loopbacks are the networks that commands share. The worker holds them, so they end with it.
type loopbacks struct {
	create func() (*isolation.Loopback, error)
	idle   time.Duration // loopbackIdle, except in tests

	mu    sync.Mutex
	byKey map[loopbackKey]*sharedLoopback
}

func newLoopbacks() loopbacks {
	return loopbacks{create: isolation.NewLoopback, idle: loopbackIdle, byKey: map[loopbackKey]*sharedLoopback{}}
}

type sharedLoopback struct {
	open     func() (*isolation.Loopback, error) // creates it once
	commands int
	expiry   *time.Timer // runs while commands is 0
}

// join returns the network that the command of r shares, or nil if it has its own. release ends the command's use.
func (l *loopbacks) join(r wire.Request) (shared *isolation.Loopback, release func(), err error) {
	if r.Loopback == "" {
		return nil, func() {}, nil
	}
	key := loopbackKey{r.Loopback, r.Network != ""}
	l.mu.Lock()
	s := l.byKey[key]
	if s == nil {
		s = &sharedLoopback{open: sync.OnceValues(l.create)}
		s.expiry = time.AfterFunc(l.idle, func() { l.expire(key, s) })
		l.byKey[key] = s
	}
	s.commands++
	s.expiry.Stop()
	l.mu.Unlock()
	if shared, err = s.open(); err != nil {
		l.release(key, s)
		l.expire(key, s)
		return nil, nil, fmt.Errorf("create the network that the commands of a chat share: %w", err)
	}
	return shared, sync.OnceFunc(func() { l.release(key, s) }), nil
}

func (l *loopbacks) release(key loopbackKey, s *sharedLoopback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.commands--
	if s.commands > 0 {
		return
	}
	idle := 0
	for _, other := range l.byKey {
		if other.commands == 0 {
			idle++
		}
	}
	if idle > maxIdleLoopbacks {
		l.remove(key, s)
		return
	}
	s.expiry.Reset(l.idle)
}

// expire removes a network that no command has used for a while.
func (l *loopbacks) expire(key loopbackKey, s *sharedLoopback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.commands == 0 {
		l.remove(key, s)
	}
}

func (l *loopbacks) remove(key loopbackKey, s *sharedLoopback) {
	if l.byKey[key] != s {
		return
	}
	delete(l.byKey, key)
	s.expiry.Stop()
	if shared, err := s.open(); err == nil {
		shared.Close()
	}
}

// close removes all networks.
func (l *loopbacks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, s := range l.byKey {
		l.remove(key, s)
	}
}
