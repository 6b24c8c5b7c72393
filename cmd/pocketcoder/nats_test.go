package main

import (
	"os"
	"slices"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/ops/natsconf"
)

// Whoever waits for the system to come back waits at its address.
func TestTheLogIsServedWhereItWasIfThatIsFree(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d, other := dataDir(t.TempDir()), dataDir(t.TempDir())
	serve := func(d dataDir) (address string, stop func()) {
		keys, err := natsconf.LoadKeys(d.path("keys"))
		is.NoErr(err)
		server, err := startNATS(t.Context(), upOptions{data: d}, keys)
		is.NoErr(err)
		t.Cleanup(server.Close)
		return server.Addr().String(), server.Close
	}
	first, stop := serve(d)
	stop()
	again, _ := serve(d)
	is.Equal(again, first)
	for _, last := range []string{first, "0.0.0.0:0", "", "nowhere"} { // taken, or none of ours
		is.NoErr(os.WriteFile(other.path("nats-address"), []byte(last), 0o600))
		address, stop := serve(other)
		is.True(address != first)
		is.Equal(address[:len("127.0.0.1:")], "127.0.0.1:")
		stop()
	}
}

// A reader may make consumers of its own. It may neither change nor use those that the system works with.
func TestReadersAreKeptFromAllWorkOfTheSystem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	reserved := natsConfig(p.data, natsconf.Keys{}).Reserved
	js, err := jetstream.NewWithAPIPrefix(p.nc, natsconf.ReaderAPI)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	found := 0
	consumers := stream.ListConsumers(t.Context())
	for info := range consumers.Info() {
		if name := info.Config.Durable; name != "" && info.Config.InactiveThreshold == 0 {
			found++
			if !slices.Contains(reserved, name) {
				t.Errorf("a reader may change the consumer %q", name)
			}
		}
	}
	is.NoErr(consumers.Err())
	is.Equal(found, len(reserved))
}
