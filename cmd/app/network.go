package app

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"

	"pocketcoder/bridge/egress"
	"pocketcoder/bridge/mcp"
	"pocketcoder/bridge/opencode"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/network"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web"
	"pocketcoder/web/metrics"
)

func listen(what, address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open %s on %s: %w; choose another with %s", what, address, err, flag)
	}
	return l, nil
}

// listenLocal opens the socket at which the operator of this machine reaches the API. Only its owner can open it.
func listenLocal(path string) (net.Listener, error) {
	l, err := opencode.ListenForShells(path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("open socket %s: %w", path, err)
	}
	return l, nil
}

func (s *System) openMetrics() (err error) {
	if s.o.Metrics == "" {
		return nil
	}
	if s.metrics, err = listen("metrics", s.o.Metrics, "--metrics"); err != nil {
		return err
	}
	s.onClose("the metrics", s.metrics.Close)
	s.progress.Done("metrics", "http://%s/metrics", s.metrics.Addr())
	return nil
}

func (s *System) serveMetrics(ctx context.Context) error {
	if s.metrics == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return web.Serve(ctx, s.metrics, metrics.Handler(metrics.Source{Conn: s.nc, Model: s.model, Health: s.health,
		Logger: s.o.Logger}))
}

// wireNetwork creates the network access of commands and of MCP servers.
func (s *System) wireNetwork() {
	host, _, _ := net.SplitHostPort(s.o.Egress) // checked by Options.Check
	_, port, _ := net.SplitHostPort(s.egress.Addr().String())
	s.network = &network.Sandbox{Gate: s.gate, Mode: s.o.Network, Proxy: net.JoinHostPort(host, port), Tail: s.tail}
	s.mcpHosts = &network.Servers{Network: s.network}
}

func (s *System) mcpSecrets() mcpserver.Secrets {
	return mcpserver.Secrets{Records: s.records}
}

func (s *System) runEgress(ctx context.Context) error {
	roots, err := rootsWith(s.o.Getenv("NODE_EXTRA_CA_CERTS"))
	if err != nil {
		return err
	}
	running := func() (all []egress.Engine) {
		for _, e := range s.engines.Running() {
			all = append(all, egress.Engine{Engine: e.network, Own: e.tools})
		}
		return all
	}
	return (&egress.Server{Network: s.network, Engines: running, Servers: s.mcpHosts, Logger: s.o.Logger, Roots: roots,
		Direct: s.isolation.Level == isolation.None}).Serve(ctx, s.egress)
}

// renewTools returns PocketCoder's MCP server for the next start of OpenCode. OpenCode reaches it through the egress
// proxy, which also answers directly when OpenCode is not confined.
func (e *engine) renewTools() opencode.MCPServer {
	s, secrets := e.s, e.tools.Renew()
	s.log.Conceal(secret.System, "mcp", strings.TrimPrefix(secrets.Header, "Bearer "), secrets.Key)
	host := egress.OwnHost
	if s.isolation.Level == isolation.None {
		host = s.network.Proxy
	}
	return opencode.MCPServer{URL: "http://" + host + mcp.Path, Header: secrets.Header, Key: secrets.Key}
}

// rootsWith returns the system's trusted certificates and those of a PEM file, nil if path is empty. OpenCode reads the
// same environment variable.
func rootsWith(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(path)
	if err == nil && !roots.AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s holds no certificate in PEM", path)
	}
	if err != nil {
		return nil, fmt.Errorf("NODE_EXTRA_CA_CERTS: %w", err)
	}
	return roots, nil
}
