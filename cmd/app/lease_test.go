package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

// leaseNode is a node of a test, with a connection of its own.
type leaseNode struct {
	*engineLease
	conn    *nats.Conn
	holds   atomic.Bool
	expired chan error
	stop    func()
}

// startNodes starts a server, and returns how to start a node.
func startNodes(t *testing.T) (start func(name string) *leaseNode) {
	server := eventstest.Server(t, expect.MemoryDir(t))
	return func(name string) *leaseNode {
		is := is.New(t)
		n := &leaseNode{conn: eventstest.Conn(t, server), expired: make(chan error, 1)}
		var err error
		n.engineLease, err = openEngineLease(t.Context(), n.conn, 1, "e1", name, func() {}, func(err error) {
			if n.holds.Swap(false) {
				n.expired <- err
			}
		})
		is.NoErr(err)
		n.pause = 500 * time.Millisecond // a busy machine renews the lease in time, too
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
	start := startNodes(t)
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

func (n *leaseNode) revisionNow(t *testing.T) uint64 {
	e, err := n.kv.Get(t.Context(), "e1")
	if err != nil {
		t.Fatal(err)
	}
	return e.Revision()
}

func TestANodeThatStopsReleasesTheLease(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a := startNodes(t)("a")
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
	start := startNodes(t)
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
	start := startNodes(t)
	a := start("a")
	expect.Eventually(t, "a holds the lease", a.holds.Load)
	_, err := a.kv.Put(t.Context(), "e1", []byte(`{"node":"b"}`))
	is.NoErr(err)
	expect.Contains(t, (<-a.expired).Error(), `taken by node "b"`)
}

// The record is stored, and the connection ends before the answer.
func TestANodeWhoseAnswerWasLostHoldsTheLease(t *testing.T) {
	t.Parallel()
	start := startNodes(t)
	a := start("a")
	expect.Eventually(t, "a holds the lease", a.holds.Load)
	_, err := a.kv.Put(t.Context(), "e1", []byte(`{"node":"a"}`)) // as its renewal
	is.New(t).NoErr(err)
	before := a.revisionNow(t)
	expect.Eventually(t, "a goes on", func() bool { return a.revisionNow(t) > before+holderPauses+1 })
	is.New(t).True(a.holds.Load())
	a.stop()
}

// memoryBucket is a bucket in memory for one record. It can be used with the clock of synctest.
type memoryBucket struct {
	jetstream.KeyValue
	leaseEntry
	unanswered int // the next calls, which get no answer
}

type leaseEntry struct {
	jetstream.KeyValueEntry
	value    []byte
	revision uint64
}

func (e leaseEntry) Value() []byte    { return e.value }
func (e leaseEntry) Revision() uint64 { return e.revision }

func (s *memoryBucket) answer(ctx context.Context) error {
	if s.unanswered > 0 {
		s.unanswered--
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *memoryBucket) Get(ctx context.Context, _ string) (jetstream.KeyValueEntry, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	if s.revision == 0 {
		return nil, jetstream.ErrKeyNotFound
	}
	return s.leaseEntry, nil
}

func (s *memoryBucket) Create(ctx context.Context, key string, value []byte,
	_ ...jetstream.KVCreateOpt) (uint64, error) {
	return s.Update(ctx, key, value, 0)
}

func (s *memoryBucket) Update(ctx context.Context, _ string, value []byte, _ uint64) (uint64, error) {
	if err := s.answer(ctx); err != nil {
		return 0, err
	}
	s.value, s.revision = value, s.revision+1
	return s.revision, nil
}

func (s *memoryBucket) Delete(context.Context, string, ...jetstream.KVDeleteOpt) error { return nil }

func TestARenewalAndACheckWithoutAnswersDoNotEndAHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		store := &memoryBucket{}
		l := &engineLease{kv: store, engine: "e1", node: "a", pause: leasePause, Changed: func() {},
			Expired: func(err error) { t.Error(err) }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx, func() error { store.unanswered = 2; return nil }) }()
		time.Sleep(10 * leasePause)
		synctest.Wait()
		is.Equal(store.unanswered, 0)
		is.True(store.revision > holderPauses) // it has gone on to renew the lease
		cancel()
		is.True(errors.Is(<-ended, context.Canceled))
	})
}
