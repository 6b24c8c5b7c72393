package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/log/sleep"
)

const (
	leaseBucketName = "LEASES"

	leasePause      = time.Second // between two renewals
	holderPauses    = 4           // pauses after which a holder that cannot renew must have stopped
	candidatePauses = 5           // pauses after which a candidate takes a lease that is not renewed
)

type leaseHolder struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"` // by the clock of the node; for people
}

// engineLease is one node's view of the lease of an engine, which lets one node at a time run the engine. The lease is
// a record in a bucket of NATS, which its holder renews. Call either Run or Follow, once.
//
// If a holder cannot renew the lease, Expired is called before another node can take it. Clocks of two machines are
// never compared. The holder counts from the moment before it sent its last renewal. A candidate counts from the moment
// after it first read that renewal, and it counts longer.
type engineLease struct {
	// Expired is called if the lease could not be renewed in time, before another node can take it. It must stop at once
	// what the lease permits.
	Expired func(error)
	Changed func() // called when Holder may have changed

	kv     jetstream.KeyValue
	engine string
	node   string // unique among all processes
	pause  time.Duration
	holder atomic.Pointer[leaseHolder] // the last holder; nil for none
	held   atomic.Bool                 // the holder still holds the lease

	revision uint64    // of the record, as last read or written; 0 if there is none
	read     time.Time // when this revision was first read
}

// openEngineLease opens the bucket with so many replicas, and returns the lease of an engine for a node.
func openEngineLease(ctx context.Context, nc *nats.Conn, replicas int, engine, node string, changed func(),
	expired func(error)) (*engineLease, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open leases: %w", err)
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, leaseBucket(replicas))
	if err != nil {
		return nil, fmt.Errorf("open leases: %w", err)
	}
	return &engineLease{kv: kv, engine: engine, node: node, pause: leasePause, Changed: changed, Expired: expired}, nil
}

// leaseBucket returns the configuration of the bucket.
func leaseBucket(replicas int) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{Bucket: leaseBucketName, Description: "which node runs an engine", History: 1,
		Storage: jetstream.FileStorage, Replicas: replicas}
}

// Holder returns the last known holder, and reports whether it still holds the lease.
func (l *engineLease) Holder() (h leaseHolder, held bool) {
	if last := l.holder.Load(); last != nil {
		h = *last
	}
	return h, l.held.Load()
}

// Follow updates Holder until ctx ends. It never takes the lease.
func (l *engineLease) Follow(ctx context.Context) error {
	for {
		_, _ = l.check(ctx) // the next look is soon
		if err := sleep.For(ctx, l.pause/2); err != nil {
			return err
		}
	}
}

// Run takes the lease once it is free, calls taken, and renews the lease until ctx ends. It then releases the lease,
// so that another node takes it at once.
func (l *engineLease) Run(ctx context.Context, taken func() error) error {
	sent, err := l.take(ctx)
	if err != nil {
		return err
	}
	deadline := time.AfterFunc(time.Until(sent.Add(holderPauses*l.pause)), func() {
		l.Expired(fmt.Errorf("the lease of engine %s could not be renewed for %s", l.engine, holderPauses*l.pause))
	})
	defer deadline.Stop()
	defer l.release(context.WithoutCancel(ctx))
	if err := taken(); err != nil {
		return err
	}
	for wait := l.pause; ; {
		if err := sleep.For(ctx, wait); err != nil {
			return err
		}
		if sent, err := l.write(ctx); err == nil {
			deadline.Reset(time.Until(sent.Add(holderPauses * l.pause)))
			wait = l.pause
			continue
		}
		wait = l.pause / 4 // so that a retry comes before the deadline
		if err := l.checkStolen(ctx); err != nil {
			l.Expired(err)
		}
	}
}

// take waits until this node holds the lease. It returns the time before the record was sent.
func (l *engineLease) take(ctx context.Context) (sent time.Time, err error) {
	for {
		if free, err := l.check(ctx); err == nil && free {
			if sent, err := l.write(ctx); err == nil {
				return sent, nil
			}
		}
		if err := sleep.For(ctx, l.pause/2); err != nil {
			return sent, err
		}
	}
}

// check reads the record, and reports whether this node may take the lease.
func (l *engineLease) check(ctx context.Context) (free bool, err error) {
	holder, revision, err := l.get(ctx)
	if err != nil {
		return false, err
	}
	if revision != l.revision || l.read.IsZero() {
		l.revision, l.read = revision, time.Now()
	}
	expired := time.Since(l.read) >= candidatePauses*l.pause
	if expired {
		holder = nil
	}
	l.setHolder(holder)
	return holder == nil || holder.Node == l.node, nil // its own record, if the response to write was lost
}

// get returns the record and its revision, nil and 0 for none.
func (l *engineLease) get(ctx context.Context) (*leaseHolder, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*l.pause)
	defer cancel()
	entry, err := l.kv.Get(ctx, l.engine)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var h leaseHolder
	if err := json.Unmarshal(entry.Value(), &h); err != nil {
		return nil, 0, fmt.Errorf("read lease of %s: %w", l.engine, err)
	}
	return &h, entry.Revision(), nil
}

// write takes or renews the lease, unless another node has written the record since this node read or wrote it. It
// returns the time before it sent the record.
func (l *engineLease) write(ctx context.Context) (sent time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*l.pause)
	defer cancel()
	sent = time.Now()
	h := leaseHolder{Node: l.node, Since: sent.UTC()}
	if now, ok := l.Holder(); ok && now.Node == l.node {
		h.Since = now.Since
	}
	body, err := json.Marshal(h)
	if err != nil {
		return sent, err
	}
	var revision uint64
	if l.revision == 0 {
		revision, err = l.kv.Create(ctx, l.engine, body)
	} else {
		revision, err = l.kv.Update(ctx, l.engine, body, l.revision)
	}
	if err != nil {
		return sent, fmt.Errorf("write lease of %s: %w", l.engine, err)
	}
	l.revision, l.read = revision, time.Now()
	l.setHolder(&h)
	return sent, nil
}

// checkStolen returns an error if another node has taken the lease. If only the revision has changed, the response to a
// renewal was lost. checkStolen waits only half a pause, so that the next renewal comes before the deadline.
func (l *engineLease) checkStolen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.pause/2)
	defer cancel()
	h, revision, err := l.get(ctx)
	if err != nil || revision != 0 && revision <= l.revision { // a replica may lag behind
		return nil
	}
	if h == nil || h.Node != l.node {
		return fmt.Errorf("the lease of engine %s was taken by node %q", l.engine,
			cmp.Or(h, &leaseHolder{}).Node)
	}
	l.revision = revision
	return nil
}

// release ends the lease. If it fails, another node takes the lease later.
func (l *engineLease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*l.pause)
	defer cancel()
	_ = l.kv.Delete(ctx, l.engine, jetstream.LastRevision(l.revision))
	l.setHolder(nil)
}

// setHolder sets the holder, nil for no node.
func (l *engineLease) setHolder(h *leaseHolder) {
	before, held := l.Holder()
	if h != nil {
		l.holder.Store(h)
	}
	l.held.Store(h != nil)
	if held != (h != nil) || h != nil && before.Node != h.Node {
		l.Changed()
	}
}
