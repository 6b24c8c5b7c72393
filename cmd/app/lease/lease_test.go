package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
)

// node is a node of a test, with a connection of its own.
type node struct {
	*Lease
	conn    *nats.Conn
	holds   atomic.Bool
	expired chan error
	stop    func()
}

// nodes starts a server, and returns how to start a node.
func nodes(t *testing.T) (start func(name string) *node) {
	server := eventstest.Server(t, t.TempDir())
	return func(name string) *node {
		is := is.New(t)
		n := &node{conn: eventstest.Conn(t, server), expired: make(chan error, 1)}
		var err error
		n.Lease, err = Open(t.Context(), n.conn, 1, "e1", name)
		is.NoErr(err)
		n.pause = 200 * time.Millisecond
		n.Expired = func(err error) {
			if n.holds.Swap(false) {
				n.expired <- err
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx, func() error { n.holds.Store(true); return nil }) }()
		n.stop = func() {
			n.holds.Store(false)
			cancel()
			is.True(errors.Is(<-ended, context.Canceled))
		}
		return n
	}
}

func TestOneNodeHoldsTheLeaseAndTheNextTakesItWhenItIsReleased(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	start := nodes(t)
	a := start("a")
	expect.Eventually(t, "a holds the lease", a.holds.Load)
	b := start("b")
	expect.Eventually(t, "b knows the holder", func() bool { h, ok := b.Holder(); return ok && h.Node == "a" })
	before := a.revisionNow(t)
	expect.Eventually(t, "a has renewed the lease for longer than b would wait", func() bool {
		return a.revisionNow(t) > before+candidatePauses+2
	})
	is.True(a.holds.Load() && !b.holds.Load())
	a.stop()
	expect.Eventually(t, "b holds the lease", b.holds.Load)
	h, _ := b.Holder()
	is.Equal(h.Node, "b")
	b.stop()
}

func (n *node) revisionNow(t *testing.T) uint64 {
	e, err := n.kv.Get(t.Context(), "e1")
	if err != nil {
		t.Fatal(err)
	}
	return e.Revision()
}

func TestANodeThatStopsReleasesTheLease(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a := nodes(t)("a")
	expect.Eventually(t, "a holds the lease", a.holds.Load)
	a.stop()
	_, err := a.kv.Get(t.Context(), "e1")
	is.True(errors.Is(err, jetstream.ErrKeyNotFound))
	_, held := a.Holder()
	is.True(!held)
}

// The holder's last moment is before the first one of the next.
func TestAHolderWithoutAConnectionStopsBeforeAnotherNodeTakesOver(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	start := nodes(t)
	a := start("a")
	expect.Eventually(t, "a holds the lease", a.holds.Load)
	b := start("b")
	expect.Eventually(t, "b knows the holder", func() bool { _, ok := b.Holder(); return ok })
	a.conn.Close()
	expect.Eventually(t, "b holds the lease", func() bool {
		if b.holds.Load() {
			is.True(!a.holds.Load())
			return true
		}
		return false
	})
	is.True(<-a.expired != nil)
	b.stop()
}

func TestAHolderFindsThatItsLeaseWasTaken(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	start := nodes(t)
	a := start("a")
	expect.Eventually(t, "a holds the lease", a.holds.Load)
	_, err := a.kv.Put(t.Context(), "e1", []byte(`{"node":"b"}`))
	is.NoErr(err)
	expect.Contains(t, (<-a.expired).Error(), `taken by node "b"`)
}

// The record is stored, and the connection ends before the answer.
func TestANodeWhoseAnswerWasLostHoldsTheLease(t *testing.T) {
	t.Parallel()
	start := nodes(t)
	a := start("a")
	expect.Eventually(t, "a holds the lease", a.holds.Load)
	_, err := a.kv.Put(t.Context(), "e1", []byte(`{"node":"a"}`)) // as its renewal
	is.New(t).NoErr(err)
	before := a.revisionNow(t)
	expect.Eventually(t, "a goes on", func() bool { return a.revisionNow(t) > before+holderPauses+1 })
	is.New(t).True(a.holds.Load())
	a.stop()
}

// hangingStore is a bucket in which one update gets no answer.
type hangingStore struct {
	jetstream.KeyValue
	hangs atomic.Bool // the next update
}

func (s *hangingStore) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if s.hangs.Swap(false) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.KeyValue.Update(ctx, key, value, revision)
}

func TestOneRenewalWithoutAnAnswerDoesNotEndAHolder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l, err := Open(t.Context(), eventstest.Conn(t, eventstest.Server(t, t.TempDir())), 1, "e1", "a")
	is.NoErr(err)
	store := &hangingStore{KeyValue: l.kv}
	l.kv = store
	expired := make(chan error, 10)
	l.Expired = func(err error) { expired <- err }
	ctx, cancel := context.WithCancel(t.Context())
	ended, taken := make(chan error, 1), make(chan struct{})
	go func() { ended <- l.Run(ctx, func() error { store.hangs.Store(true); close(taken); return nil }) }()
	<-taken
	before, err := store.Get(t.Context(), "e1")
	is.NoErr(err)
	expect.Eventually(t, "it goes on to renew the lease", func() bool {
		now, err := store.Get(t.Context(), "e1")
		is.NoErr(err)
		return now.Revision() > before.Revision()
	})
	select {
	case err := <-expired:
		t.Error(err)
	default:
	}
	cancel()
	is.True(errors.Is(<-ended, context.Canceled))
}
