package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"pocketcoder/bridge/egress"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/isolation"
)

// networkFlags adds the flags about the network of commands.
func (o *upOptions) networkFlags(fs *flag.FlagSet, env environment) {
	fs.StringVar((*string)(&o.network), "network", or(env, "POCKETCODER_NETWORK", string(handlers.NetworkOff)),
		"default network access of commands: off, ask (a person decides per host) or allow (all public hosts on ports 80 and 443); rules come first (POCKETCODER_NETWORK)")
	fs.StringVar(&o.egress, "egress", or(env, "POCKETCODER_EGRESS", "127.0.0.1:0"),
		"`address` of the egress proxy of commands and OpenCode; only workers should be able to reach it (POCKETCODER_EGRESS)")
}

func (o upOptions) checkNetwork() error {
	switch o.network {
	case handlers.NetworkOff, handlers.NetworkAsks, handlers.NetworkOpen:
	default:
		return fmt.Errorf("--network %q: want off, ask or allow", o.network)
	}
	if option := o.networkOption(); o.isolation == string(isolation.Landlock) && option != "" {
		return fmt.Errorf("commands have no network at --isolation landlock, and %s needs one; use --isolation bwrap", option)
	}
	host, port, err := net.SplitHostPort(o.egress)
	if err != nil {
		return fmt.Errorf("--egress %q: %w", o.egress, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--egress %q: want a port of 0 to 65535", o.egress)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return fmt.Errorf("--egress %q: name the one address at which workers reach it, and nobody else should", o.egress)
	}
	return nil
}

// sandboxNetwork is the network of commands that the sandbox keeps from the host's network; empty where it does not.
func (o upOptions) sandboxNetwork() handlers.NetworkMode {
	switch o.isolation {
	case string(isolation.None), string(isolation.Container):
		return ""
	}
	return o.network
}

// networkOption returns the flag that lets commands reach a host, or an empty string.
func (o upOptions) networkOption() string {
	if o.network != handlers.NetworkOff {
		return "--network " + string(o.network)
	}
	for _, r := range o.rules {
		if r.Permission == "network" && r.Action != policy.Deny {
			return fmt.Sprintf("--allow '%s'", r)
		}
	}
	return ""
}

// openEgress listens where commands leave. It is there even with --network off: a rule may allow a chat a host at any time.
func openEgress(o upOptions) (net.Listener, error) {
	l, err := net.Listen("tcp", o.egress)
	if err != nil {
		return nil, fmt.Errorf("open egress proxy on %s: %w; choose another with --egress", o.egress, err)
	}
	return l, nil
}

// wireNetwork makes what lets commands reach hosts, once the API's tail of the log is there.
func (s *parts) wireNetwork() {
	host, _, _ := net.SplitHostPort(s.o.egress) // it was checked
	_, port, _ := net.SplitHostPort(s.leaving.Addr().String())
	s.exec.Network = &handlers.Network{Gate: s.gate, Mode: s.o.network, Proxy: net.JoinHostPort(host, port), Tail: s.web.API.Tail}
	s.outside = &handlers.EngineNetwork{Network: s.exec.Network}
	if address := s.provider.ModelAddress(); address != "" {
		s.outside.Models = []string{address}
	}
}

func (s *parts) runEgress(ctx context.Context) error {
	return (&egress.Server{Network: s.exec.Network, Engine: s.outside, Logger: s.o.logger}).Serve(ctx, s.leaving)
}
