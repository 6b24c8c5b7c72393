package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"syscall"

	"pocketcoder/sandbox/inside"
	"pocketcoder/sandbox/isolation"
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
		proxy.Host = inside.ProxyAddress
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
