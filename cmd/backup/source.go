package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events/recovery"
	"pocketcoder/ops/natsconf"
	"pocketcoder/projections/store"
)

// openLog connects to the server of a running system or to an external server. For a stopped system it starts a server
// on the log.
func openLog(ctx context.Context, d datadir.Dir, external string) (nc *nats.Conn, closeLog func(), err error) {
	running, err := d.Running()
	switch {
	case err == nil && external == "":
		external = running.NATS
	case err != nil && !errors.Is(err, datadir.ErrNotRunning):
		return nil, nil, err
	}
	if _, err := os.Stat(d.Path("keys")); err != nil {
		return nil, nil, fmt.Errorf("there is no installation in %s; name its data directory with --data", d)
	}
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	if err != nil {
		return nil, nil, err
	}
	if external == "" {
		return startLog(ctx, d, keys)
	}
	options, err := keys.Options(natsconf.Core, "pocketcoder backup")
	if err != nil {
		return nil, nil, err
	}
	if nc, err = nats.Connect(external, options...); err != nil {
		return nil, nil, fmt.Errorf("connect to NATS at %s: %w", external, err)
	}
	return nc, nc.Close, nil
}

// startLog locks the data directory and starts a server on its log.
func startLog(ctx context.Context, d datadir.Dir, keys natsconf.Keys) (*nats.Conn, func(), error) {
	if _, err := os.Stat(d.Path("nats")); err != nil {
		return nil, nil, fmt.Errorf("there is no log in %s; if the system uses an external NATS server, name it with --nats",
			d)
	}
	release, err := d.Open()
	if err != nil {
		return nil, nil, err
	}
	server, nc, err := OpenStore(ctx, d.Path("nats"), keys, false)
	if err != nil {
		release()
		return nil, nil, err
	}
	return nc, func() { nc.Close(); server.Close(); release() }, nil
}

// OpenStore starts a server on a store directory and connects to it. With bulk the caller syncs the files once the
// server is closed. Otherwise the store is in its data directory, and damaged files are repaired first.
func OpenStore(ctx context.Context, dir string, keys natsconf.Keys, bulk bool) (*natsconf.Server, *nats.Conn, error) {
	options, err := keys.Options(natsconf.Core, "pocketcoder backup")
	if err != nil {
		return nil, nil, err
	}
	config := natsconf.Config{Name: "pocketcoder", StoreDir: dir, Keys: keys.Public, Pools: []string{"default"},
		Bulk: bulk}
	if !bulk { // the log of a system
		data := filepath.Dir(dir)
		guard, err := recovery.Open(data, slog.Default())
		if err != nil {
			return nil, nil, err
		}
		config.Check = func(ctx context.Context, streams string) error {
			return guard.Check(ctx, streams, store.Applied(ctx, datadir.Dir(data).ReadModels()))
		}
	}
	server, err := natsconf.Start(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	nc, err := nats.Connect("", append(options, nats.InProcessServer(server.Server))...)
	if err != nil {
		server.Close()
		return nil, nil, fmt.Errorf("connect to the embedded NATS: %w", err)
	}
	return server, nc, nil
}
