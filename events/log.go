// Package events is the log: what can happen (events.go), where it is kept (subjects.go, streams.go), and the only code
// that reads and writes it.
//
// Facts are kept in the JetStream stream EVENTS, for ever; streaming fragments in DELTAS, for a week; bodies over 256
// KiB in the bucket BLOBS. An event's body is its JSON and nothing else; its metadata are CloudEvents headers.
//
// Promises: an event that Append acknowledged is on disk (sync-always server) and is never changed or removed. A
// batch is stored whole, in order, or not at all. Append with an Expect refuses with ErrConflict when another writer
// was first. Read gives every stored event from a sequence on, in order, once, and says when it has caught up; it does
// not stop on a message it cannot understand. Large bodies are moved out and back here; nobody else sees them move.
// Known secrets are replaced before anything is stored.
//
// It must not know what a decision, a read model or an OpenCode server is, and imports none of ours.
package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MaxInline is the largest body, in bytes, that is stored in the message itself.
const MaxInline = 256 << 10

// ErrConflict says another writer appended first: read again, decide again.
var ErrConflict = errors.New("the chat has newer events")

// Log is the API over the streams. It is safe for concurrent use.
type Log struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	prefix string // of the JetStream API
	blobs  jetstream.ObjectStore

	redact     atomic.Pointer[Redactor] // nil when what is concealed has changed
	concealing sync.Mutex               // guards what follows
	own        Redactor                 // of the secrets that Open was given
	concealed  map[string]concealed     // by group
}

// concealed are the secrets of a group.
type concealed struct {
	secrets int
	forms   [][]byte // as they may stand in a text
}

// Open creates or updates the streams and gives the log. Deploying is migrating: there is no other step.
func Open(ctx context.Context, nc *nats.Conn, o StreamOptions, r Redactor) (*Log, error) {
	l, err := Attach(nc, "$JS.API")
	if err != nil {
		return nil, err
	}
	l.own = r
	for _, c := range []jetstream.StreamConfig{EventsConfig(o), DeltasConfig(o)} {
		if _, err := l.js.CreateOrUpdateStream(ctx, c); err != nil {
			return nil, fmt.Errorf("open stream %s: %w", c.Name, err)
		}
	}
	if l.blobs, err = l.js.CreateOrUpdateObjectStore(ctx, BlobsConfig(o)); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", blobsBucket, err)
	}
	return l, nil
}

// Attach gives the log of a system that is already running to a reader: one whose rights end at reading, and whose
// account sees JetStream's API under another prefix.
func Attach(nc *nats.Conn, apiPrefix string) (*Log, error) {
	js, err := jetstream.NewWithAPIPrefix(nc, apiPrefix, jetstream.WithPublishAsyncMaxPending(deltasInFlight), jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	return &Log{nc: nc, js: js, prefix: apiPrefix, concealed: map[string]concealed{}}, nil
}

// Redactor knows the secrets of this installation that are known now.
func (l *Log) Redactor() Redactor {
	if r := l.redact.Load(); r != nil {
		return *r
	}
	l.concealing.Lock()
	defer l.concealing.Unlock()
	var forms [][]byte
	for _, group := range l.concealed {
		forms = append(forms, group.forms...)
	}
	r := l.own.with(forms)
	l.redact.Store(&r)
	return r
}

// MaxConcealed is how many secrets Conceal takes in all.
const MaxConcealed = 2000

// Conceal makes these the secrets of a group that are replaced in whatever is stored from now on, in place of those it had:
// with none, the group is forgotten. The keys of JSON objects stay as they are, because people choose some of these secrets.
// It gives how many are left out, the last ones, because there are MaxConcealed already: those pass.
func (l *Log) Conceal(group string, secrets ...string) (left int) {
	l.concealing.Lock()
	defer l.concealing.Unlock()
	delete(l.concealed, group)
	room := MaxConcealed
	for _, other := range l.concealed {
		room -= other.secrets
	}
	taken := secrets[:min(len(secrets), room)]
	if len(taken) > 0 {
		l.concealed[group] = concealed{len(taken), formsOf(taken)}
	}
	l.redact.Store(nil)
	return len(secrets) - len(taken)
}

// requestTimeout bounds one request to the server; an append may wait behind slow syncs.
const requestTimeout = 15 * time.Second

// Last is the sequence of the newest event, 0 for an empty log.
func (l *Log) Last(ctx context.Context) (uint64, error) {
	s, err := l.js.Stream(ctx, eventsStream)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", eventsStream, err)
	}
	return s.CachedInfo().State.LastSeq, nil
}
