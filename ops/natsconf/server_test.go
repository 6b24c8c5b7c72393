package natsconf_test

import (
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/natsconf"
)

// testServer is an embedded server with the configuration that ships.
type testServer struct {
	*natsconf.Server
	config natsconf.Config
	keys   natsconf.Keys
	t      testing.TB
}

func start(t testing.TB) *testServer {
	t.Helper()
	is := is.New(t)
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.NoErr(err)
	c := natsconf.Config{
		Name: "test", Listen: "127.0.0.1:0", StoreDir: t.TempDir(), Keys: keys.Public,
		Engines: []string{"e1"}, Pools: []string{"p1"}, Reserved: []string{"deliver"},
	}
	s, err := natsconf.Start(t.Context(), c)
	is.NoErr(err)
	t.Cleanup(s.Close)
	return &testServer{s, c, keys, t}
}

// connect connects as id over TCP; what the server denies it arrives on the channel.
func (s *testServer) connect(id natsconf.Identity) (*nats.Conn, <-chan error) {
	s.t.Helper()
	is := is.New(s.t)
	denied := make(chan error, 1000)
	opts, err := s.keys.Options(id, "test")
	is.NoErr(err)
	opts = append(opts, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	nc, err := nats.Connect(s.ClientURL(), opts...)
	is.NoErr(err)
	s.t.Cleanup(nc.Close)
	return nc, denied
}
