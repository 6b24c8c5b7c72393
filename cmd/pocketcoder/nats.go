package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/push"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/ops/natsconf"
)

// openNATS starts the embedded server, or connects to the one that was named.
func openNATS(ctx context.Context, o upOptions, keys natsconf.Keys) (nc *nats.Conn, url string, closeAll func(), err error) {
	options, err := keys.Options(natsconf.Core, "pocketcoder")
	if err != nil {
		return nil, "", nil, err
	}
	if o.nats != "" {
		if _, err := natsconf.CheckServers(ctx, o.nats, keys); err != nil {
			return nil, "", nil, err
		}
		nc, err := nats.Connect(o.nats, options...)
		if err != nil {
			return nil, "", nil, fmt.Errorf("connect to NATS at %s: %w", o.nats, err)
		}
		return nc, o.nats, nc.Close, nil
	}
	server, err := startNATS(ctx, o.data, keys)
	if err != nil {
		return nil, "", nil, err
	}
	nc, err = nats.Connect("", append(options, nats.InProcessServer(server.Server))...)
	if err != nil {
		server.Close()
		return nil, "", nil, fmt.Errorf("connect to the embedded NATS: %w", err)
	}
	return nc, server.ClientURL(), func() { nc.Close(); server.Close() }, nil
}

// startNATS starts the embedded server, where it was the last time if that is free: who waits for the system to come back finds it
// there, and so does a context of the nats CLI.
func startNATS(ctx context.Context, d dataDir, keys natsconf.Keys) (*natsconf.Server, error) {
	c := natsConfig(d, keys)
	last, _ := os.ReadFile(d.path("nats-address")) // none is as good as one that is taken
	if at, err := netip.ParseAddrPort(strings.TrimSpace(string(last))); err == nil && at.Addr().IsLoopback() {
		if l, err := net.Listen("tcp", at.String()); err == nil {
			l.Close()
			c.Listen = at.String()
		}
	}
	server, err := natsconf.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := writeFile(d.path("nats-address"), []byte(server.Addr().String()+"\n")); err != nil {
		server.Close()
		return nil, err
	}
	return server, nil
}

// natsConfig is the configuration of the embedded server, and the beginning of that of an external one.
func natsConfig(d dataDir, keys natsconf.Keys) natsconf.Config {
	return natsconf.Config{
		Name: "pocketcoder", Listen: "127.0.0.1:0", StoreDir: d.path("nats"), Keys: keys.Public,
		Pools: []string{pool}, Reserved: []string{
			handlers.GateWorker, handlers.GateRequestsWorker, handlers.GateRulesWorker, opencode.AbortWorker, opencode.RevertWorker, opencode.ForkWorker,
			opencode.BudgetWorker, opencode.BudgetDecisionsWorker, push.Worker,
		},
	}
}

// streamOptions leaves most of a small disk to the facts: the server sets the fragments' share aside, and counts only three
// quarters of what is free.
func streamOptions(o upOptions) log.Options {
	streams := log.DefaultOptions
	streams.Replicas = o.replicas
	var disk syscall.Statfs_t
	if o.nats == "" && syscall.Statfs(string(o.data), &disk) == nil {
		streams.DeltaMaxBytes = min(streams.DeltaMaxBytes, int64(disk.Bavail)*int64(disk.Bsize)/8)
	}
	return streams
}
