package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"

	"pocketcoder/sandbox/inside"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// proxyVariables are those that programs look for an HTTP proxy in; the lower ones are curl's, which takes no HTTP_PROXY.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"}

// proxyEnvironment names the proxy to the command: behind bubblewrap not where it is, but where the command's own network
// has it.
func (w *Worker) proxyEnvironment(r wire.Request) (variables []string) {
	proxy, err := url.Parse(r.Network)
	if r.Network == "" || err != nil || w.config.Isolation.Level == isolation.Landlock {
		return nil // Landlock knows ports, not addresses: a host that listens on the proxy's port would be let through
	}
	if w.config.Isolation.Level == isolation.Bwrap {
		proxy.Host = inside.ProxyAddress
	}
	for _, name := range proxyVariables {
		variables = append(variables, name+"="+proxy.String())
	}
	const local = "localhost,127.0.0.1,::1"
	return append(variables, "NO_PROXY="+local, "no_proxy="+local)
}

// proxyAddress is the host and port of a proxy.
func proxyAddress(network string) (host string, port uint16, err error) {
	proxy, err := url.Parse(network)
	if err != nil {
		return "", 0, errors.New("the proxy for the network is no URL") // which holds a password
	}
	n, err := strconv.ParseUint(proxy.Port(), 10, 16)
	if proxy.Scheme != "http" || proxy.Hostname() == "" || err != nil || n == 0 {
		return "", 0, errors.New("the proxy for the network is not http://host:port")
	}
	return proxy.Host, uint16(n), nil
}

// serveProxy passes on what the command sends to its proxy.
func (c *command) serveProxy(network string, log *slog.Logger) {
	address, _, err := proxyAddress(network)
	if err == nil {
		err = c.link.Serve(address)
	}
	if err != nil && !isClosed(c.exited) {
		log.Warn("command has no proxy", "exec", c.exec, "err", err)
	}
}

// setServing makes the ports of an exec reachable for connect, until forget; without a link they are the machine's own.
func (w *Worker) setServing(exec string, link *inside.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serving[exec] = link
}

// connect opens a connection to a port on the loopback address where a command runs that was allowed to serve ports.
func (w *Worker) connect(ctx context.Context, exec string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("port %d is out of range", port)
	}
	if w.config.Isolation.Level == isolation.Landlock {
		return nil, errors.New("a command serves nothing behind Landlock: install bubblewrap on the worker's machine")
	}
	w.mu.Lock()
	link, ok := w.serving[exec]
	w.mu.Unlock()
	switch {
	case !ok:
		return nil, errors.New("it is not running here, or was not started to serve ports")
	case link != nil:
		return link.Dial(port)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
}
