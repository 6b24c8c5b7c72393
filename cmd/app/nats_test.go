package app

import (
	"os"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/natsconf"
)

// Whoever waits for the system to come back waits at its address.
func TestTheLogIsServedWhereItWasIfThatIsFree(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d, other := datadir.Dir(t.TempDir()), datadir.Dir(t.TempDir())
	serve := func(d datadir.Dir) (address string, stop func()) {
		keys, err := natsconf.LoadKeys(d.Path("keys"))
		is.NoErr(err)
		server, err := startNATS(t.Context(), Options{Data: d}, keys)
		is.NoErr(err)
		t.Cleanup(server.Close)
		return server.Addr().String(), server.Close
	}
	first, stop := serve(d)
	stop()
	again, _ := serve(d)
	is.Equal(again, first)
	for _, last := range []string{first, "0.0.0.0:0", "", "nowhere"} { // taken, or none of ours
		is.NoErr(os.WriteFile(other.Path("nats-address"), []byte(last), 0o600))
		address, stop := serve(other)
		is.True(address != first)
		is.Equal(address[:len("127.0.0.1:")], "127.0.0.1:")
		stop()
	}
}
