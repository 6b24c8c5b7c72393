package app

import (
	"log/slog"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/natsconf"
)

// DELTAS reserves space when it is created. A data directory that moves to a smaller disk opens there.
func TestAReservationOfALargeDiskDoesNotStopAStartOnASmallOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := datadir.Dir(t.TempDir())
	eventstest.SmallDisk(t, string(d), 200)
	keys, err := natsconf.LoadKeys(d.Path("keys"))
	is.NoErr(err)
	large := log.DefaultOptions // 1 GiB
	for _, options := range []log.Options{large, streamOptions(Options{Data: d}), large} {
		n, err := openLogServer(t.Context(), logServerOptions{Data: d, Config: NATSConfig(d, keys),
			Logger: slog.New(slog.DiscardHandler)}, keys)
		is.NoErr(err)
		_, err = log.Open(t.Context(), n.Conn, options, secret.NewRedactor())
		is.NoErr(err)
		n.Close()
	}
}
