package natsconf_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

// testServer is a server, or a cluster, with the configuration that ships.
type testServer struct {
	*server.Server // the first
	servers        []*server.Server
	config         natsconf.Config
	keys           natsconf.Keys
	next           atomic.Int32
	t              testing.TB
}

func newTestServer(t testing.TB) *testServer {
	t.Helper()
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.New(t).NoErr(err)
	return &testServer{t: t, keys: keys, config: natsconf.Config{
		Name: "test", Listen: "127.0.0.1:0", StoreDir: expect.MemoryDir(t), Keys: keys.Public,
		Pools: []string{"p1"},
	}}
}

// start runs the embedded server.
func start(t testing.TB) *testServer {
	t.Helper()
	n := newTestServer(t)
	s, err := natsconf.Start(t.Context(), n.config)
	is.New(t).NoErr(err)
	t.Cleanup(s.Close)
	n.Server, n.servers = s.Server, []*server.Server{s.Server}
	return n
}

// alone runs nats-server as an installation of its own does: it reads the same text from a file.
func alone(t testing.TB) *testServer { return external(t, asItIs, nil) }

func asItIs(text string) string { return text }

// cluster runs three of them, one for each machine.
func cluster(t testing.TB) *testServer {
	t.Helper()
	var addresses []string
	for range 3 {
		addresses = append(addresses, expect.Address(t))
	}
	var members []*natsconf.Cluster
	for _, a := range addresses {
		members = append(members, &natsconf.Cluster{Name: "test", Listen: a, Routes: addresses, Secret: "secret"})
	}
	n := external(t, asItIs, members...)
	expect.Eventually(t, "a leader is elected", func() bool {
		return slices.ContainsFunc(n.servers, func(s *server.Server) bool {
			return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(members)
		})
	})
	return n
}

func external(t testing.TB, edit func(text string) string, members ...*natsconf.Cluster) *testServer {
	t.Helper()
	is := is.New(t)
	n := newTestServer(t)
	for i, member := range members {
		c := n.config
		c.Name, c.StoreDir, c.Cluster = "n"+strconv.Itoa(i+1), expect.MemoryDir(t), member
		text, err := c.Text()
		is.NoErr(err)
		file := filepath.Join(t.TempDir(), "nats.conf")
		is.NoErr(os.WriteFile(file, []byte(edit(text)), 0o600))
		opts, err := server.ProcessConfigFile(file)
		is.NoErr(err)
		opts.NoSigs, opts.NoLog = true, true
		s, err := server.NewServer(opts)
		is.NoErr(err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		n.servers = append(n.servers, s)
	}
	for _, s := range n.servers {
		is.True(s.ReadyForConnections(time.Minute))
	}
	n.Server = n.servers[0]
	return n
}

// inEachUse runs a test against each way to run the configuration.
func inEachUse(t *testing.T, test func(*testing.T, *testServer)) {
	servers := map[string]func(testing.TB) *testServer{"embedded": start, "nats-server": alone, "cluster": cluster}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// connect connects as id over TCP, to each server in turn; what the server denies it arrives on the channel.
func (s *testServer) connect(id natsconf.Identity) (*nats.Conn, <-chan error) {
	s.t.Helper()
	is := is.New(s.t)
	denied := make(chan error, 1000)
	opts, err := s.keys.Options(id, "test")
	is.NoErr(err)
	opts = append(opts, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	server := s.servers[int(s.next.Add(1))%len(s.servers)]
	nc, err := nats.Connect(server.ClientURL(), opts...)
	is.NoErr(err)
	s.t.Cleanup(nc.Close)
	return nc, denied
}

// The server looks for 1 ms whether it takes connections. On a busy machine its goroutine may not run for so long.
func TestABusyMachineStores(t *testing.T) {
	expect.Long(t, "keeps all processors busy for up to 3 s")
	is := is.New(t)
	s, err := natsconf.Start(t.Context(), newTestServer(t).config)
	is.NoErr(err)
	t.Cleanup(s.Close)
	var over atomic.Bool
	var busy sync.WaitGroup
	defer busy.Wait()
	defer over.Store(true)
	for range 8 * runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			for !over.Load() {
			}
		})
	}
	for late, end := false, time.Now().Add(3*time.Second); !late && time.Now().Before(end); { // it is not always late
		is.NoErr(s.WriteError())
		late = len(s.Healthz(&server.HealthzOptions{Details: true}).Errors) > 0
	}
}

// NATS 2.15 reads a damaged block again for each of its messages, and cannot be stopped meanwhile.
func TestCloseReturnsWhateverNATSDoes(t *testing.T) {
	expect.Long(t, "NATS reads a damaged block for several seconds")
	t.Parallel()
	is := is.New(t)
	n := newTestServer(t)
	open := func() (*natsconf.Server, jetstream.JetStream) {
		s, err := natsconf.Start(t.Context(), n.config)
		is.NoErr(err)
		options, err := n.keys.Options(natsconf.Core, "test")
		is.NoErr(err)
		nc, err := nats.Connect("", append(options, nats.InProcessServer(s.Server))...)
		is.NoErr(err)
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		is.NoErr(err)
		return s, js
	}
	s, js := open()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "EVENTS", Subjects: []string{"evt.>"}, Compression: jetstream.S2Compression, Duplicates: 100 * time.Millisecond,
	})
	is.NoErr(err)
	begin := time.Now()
	for range 1500 { // more than a block of 8 MiB
		_, err := js.PublishAsync("evt.x", bytes.Repeat([]byte("text "), 1320))
		is.NoErr(err)
	}
	<-js.PublishAsyncComplete()
	s.Close()
	block := filepath.Join(n.config.StoreDir, "jetstream", "APP", "streams", "EVENTS", "msgs", "1.blk")
	text, err := os.ReadFile(block)
	is.NoErr(err)
	text[len(text)/2] ^= 0xff
	is.NoErr(os.WriteFile(block, text, 0o600))
	n.config.StopWithin = 500 * time.Millisecond
	s, js = open()
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := js.CreateConsumer(ctx, "EVENTS", jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &begin})
		answer <- err
	}()
	expect.Eventually(t, "NATS reads the block", func() bool { return runs("GetSeqFromTime") })
	cancel()
	is.True(errors.Is(<-answer, context.Canceled))
	s.Close()
	_, err = natsconf.Start(t.Context(), n.config)
	is.True(errors.Is(err, natsconf.ErrInUse)) // NATS has not stopped yet
}

// runs reports whether a goroutine is in a function with this name.
func runs(function string) bool {
	stacks := make([]byte, 4<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte(function+"("))
}

// The check of damaged files can take minutes, and a process that ends does not wait for it.
func TestReopenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := newTestServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	starts := true
	n.config.Check = func(check context.Context, _ string) error {
		if starts {
			starts = false
			return nil
		}
		cancel()
		select {
		case <-check.Done():
			return check.Err()
		case <-time.After(time.Minute):
			return errors.New("the context of the check has not ended")
		}
	}
	s, err := natsconf.Start(t.Context(), n.config)
	is.NoErr(err)
	t.Cleanup(s.Close)
	is.True(errors.Is(s.Reopen(ctx), context.Canceled))
}
