package app

import (
	"context"
	"fmt"
	"net"

	"pocketcoder/bridge/egress"
	"pocketcoder/handlers/network"
)

// openEgress listens where commands leave. It is there even with --network off: a rule may allow a chat a host at any time.
func openEgress(o Options) (net.Listener, error) {
	l, err := net.Listen("tcp", o.Egress)
	if err != nil {
		return nil, fmt.Errorf("open egress proxy on %s: %w; choose another with --egress", o.Egress, err)
	}
	return l, nil
}

// wireNetwork makes what lets commands reach hosts, once the API's tail of the log is there.
func (s *System) wireNetwork() {
	host, _, _ := net.SplitHostPort(s.o.Egress) // it was checked
	_, port, _ := net.SplitHostPort(s.leaving.Addr().String())
	s.exec.Network = &network.Sandbox{Gate: s.gate, Mode: s.o.Network, Proxy: net.JoinHostPort(host, port), Tail: s.web.API.Tail}
	s.outside = &network.Engine{Network: s.exec.Network}
	if address := s.provider.ModelAddress(); address != "" {
		s.outside.Models = []string{address}
	}
}

func (s *System) runEgress(ctx context.Context) error {
	return (&egress.Server{Network: s.exec.Network, Engine: s.outside, Logger: s.o.Logger}).Serve(ctx, s.leaving)
}
