package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events/log"
	"pocketcoder/ops/natsconf"
)

type openedNATS struct {
	*nats.Conn
	server *natsconf.Server // nil with --nats
	url    string
}

// Close closes the connection, and stops the embedded server.
func (n openedNATS) Close() {
	n.Conn.Close()
	if n.server != nil {
		n.server.Close()
	}
}

// openNATS starts the embedded server, or connects to the one that was named.
func openNATS(ctx context.Context, o Options, keys natsconf.Keys) (n openedNATS, err error) {
	options, err := keys.Options(natsconf.Core, "pocketcoder")
	if err != nil {
		return n, err
	}
	if n.url = o.NATS; n.url != "" {
		if _, err := natsconf.CheckServers(ctx, o.NATS, keys); err != nil {
			return n, err
		}
		if n.Conn, err = nats.Connect(o.NATS, options...); err != nil {
			return n, fmt.Errorf("connect to NATS at %s: %w", o.NATS, err)
		}
		return n, nil
	}
	if n.server, err = startNATS(ctx, o, keys); err != nil {
		return n, err
	}
	if n.Conn, err = nats.Connect("", append(options, nats.InProcessServer(n.server.Server))...); err != nil {
		n.server.Close()
		return n, fmt.Errorf("connect to the embedded NATS: %w", err)
	}
	n.url = n.server.ClientURL()
	return n, nil
}

// startNATS starts the embedded server, where it was the last time if that is free: who waits for the system to come back finds it
// there, and so does a context of the nats CLI.
func startNATS(ctx context.Context, o Options, keys natsconf.Keys) (*natsconf.Server, error) {
	d := o.Data
	c := NATSConfig(d, keys)
	c.Log = o.Logger
	free := c.Listen
	last, _ := os.ReadFile(d.Path("nats-address")) // none is as good as one that is taken
	if at, err := netip.ParseAddrPort(strings.TrimSpace(string(last))); err == nil && at.Addr().IsLoopback() {
		c.Listen = at.String()
	}
	server, err := natsconf.Start(ctx, c)
	if errors.Is(err, natsconf.ErrAddressInUse) {
		c.Listen = free
		server, err = natsconf.Start(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	if err := datadir.WriteFile(d.Path("nats-address"), []byte(server.Addr().String()+"\n")); err != nil {
		server.Close()
		return nil, err
	}
	return server, nil
}

// NATSConfig is the configuration of the embedded server, and the beginning of that of an external one.
func NATSConfig(d datadir.Dir, keys natsconf.Keys) natsconf.Config {
	return natsconf.Config{
		Name: "pocketcoder", Listen: "127.0.0.1:0", StoreDir: d.Path("nats"), Keys: keys.Public,
		Pools: []string{Pool},
	}
}

// streamOptions leaves most of a small disk to the facts: the fragments get an eighth of what is free.
func streamOptions(o Options) log.Options {
	streams := log.DefaultOptions
	streams.Replicas = o.Replicas
	if free, err := natsconf.Free(string(o.Data)); err == nil && o.NATS == "" {
		streams.DeltaMaxBytes = min(streams.DeltaMaxBytes, int64(free)/8)
	}
	return streams
}
