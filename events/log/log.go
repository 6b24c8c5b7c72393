// Package log is the API of the log for a running system: the JetStream streams EVENTS and DELTAS and the bucket
// BLOBS. No other package reads or appends events. events/archive copies whole streams, and events/recovery checks and
// repairs their files.
//
// EVENTS holds facts without a time limit. DELTAS holds streaming fragments for a week. BLOBS holds bodies over 256
// KiB. An event's body is its JSON and nothing else; its metadata are CloudEvents headers.
//
// Promises: an event that Append acknowledged is on disk (sync-always server), and a running system never changes or
// removes it. A batch is stored whole, in order, or not at all. Append with an Expect returns ErrConflict if another
// writer was first. Read calls its function with every stored event from a sequence on, in order, once, and reports
// when it has caught up; a Tail does so for any number of followers with one reader. Neither stops on a message that
// it cannot read. Append moves large bodies to BLOBS, and readers get them back (package blob). Known secrets are
// redacted before anything is stored.
//
// It must not know what a decision, a read model or an OpenCode server is.
package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/log/direct"
	"pocketcoder/events/log/sleep"
	"pocketcoder/events/secret"
)

// MaxInline is the largest body, in bytes, that is stored in the message itself.
const MaxInline = 256 << 10

// ErrConflict means that another writer appended first: read again, decide again.
var ErrConflict = errors.New("the chat has newer events")

// Log is the API over the streams and BLOBS. It is safe for concurrent use.
type Log struct {
	Blobs *blob.Store // contents that are too large for an event

	nc       *nats.Conn
	js       jetstream.JetStream
	direct   direct.Reader
	scans    direct.Reader           // for reads of whole histories
	refuse   func() error            // nil if no command is refused
	replicas int                     // of EVENTS; 0 for an attached log
	failed   atomic.Pointer[failure] // the appends that failed since the last success; nil for none
	probed   atomic.Uint64           // the last sequence at the last Probe; 0 for none

	reading sync.Mutex
	readers map[context.Context]context.CancelCauseFunc // Reopened ends them

	working   sync.Mutex
	consumers map[*consumer]bool // that run now

	*secret.Known // replaced in everything that is stored
}

// Open creates or updates the streams and returns the log. There is no other migration step. The log opens a second
// connection, which is closed with nc.
func Open(ctx context.Context, nc *nats.Conn, o Options, r secret.Redactor) (*Log, error) {
	l, err := Attach(nc)
	if err != nil {
		return nil, err
	}
	l.Known, l.refuse, l.replicas = secret.NewKnown(r), o.Refuse, o.Replicas
	for _, c := range []jetstream.StreamConfig{EventsConfig(o), DeltasConfig(o)} {
		if _, err := l.js.CreateOrUpdateStream(ctx, c); err != nil {
			return nil, fmt.Errorf("open stream %s: %w", c.Name, err)
		}
	}
	if err := l.Blobs.Create(ctx, o.Replicas, requestTimeout); err != nil {
		return nil, err
	}
	return l, l.openScans()
}

// openScans opens a connection like that of the log, which is closed with it. The server answers the requests of a
// connection one after the other, so nothing else waits for the scans.
func (l *Log) openScans() (err error) {
	if l.scans.Conn, err = l.nc.Opts.Connect(); err != nil {
		return fmt.Errorf("open a second connection to NATS: %w", err)
	}
	closed := l.nc.StatusChanged(nats.CLOSED)
	go func() {
		<-closed
		l.scans.Conn.Close()
	}()
	return nil
}

// MayLag reports whether a read may lack the newest events, because any replica answers it.
func (l *Log) MayLag() bool { return l.replicas > 1 }

// Attach returns the log of a running system for a reader.
func Attach(nc *nats.Conn) (*Log, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(deltasInFlight),
		jetstream.WithPublishAsyncTimeout(requestTimeout), jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	r := direct.Reader{Conn: nc, Prefix: "$JS.API"}
	scans := r
	scans.Yields = true
	return &Log{nc: nc, js: js, direct: r, scans: scans, Blobs: blob.Attach(js, r),
		Known: secret.NewKnown(secret.Redactor{})}, nil
}

// openingPause is the time before Last asks again a server that reopens its streams.
const openingPause = 10 * time.Millisecond

// requestTimeout bounds one request to the server; an append may wait behind slow syncs.
const requestTimeout = 15 * time.Second

// Last returns the sequence of the newest event, 0 for an empty log. It sends the request several times, because a
// server that reopens its streams never answers earlier requests.
func (l *Log) Last(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		trying, end := context.WithTimeout(ctx, attemptTimeout)
		s, err := l.js.Stream(trying, EventsStream)
		end()
		if err == nil {
			return s.CachedInfo().State.LastSeq, nil
		}
		isOpening := errors.Is(err, jetstream.ErrStreamNotFound) // a server that reopens its streams has none at first
		if !isOpening && !errors.Is(err, context.DeadlineExceeded) ||
			sleep.For(ctx, openingPause) != nil {
			return 0, fmt.Errorf("look up stream %s: %w", EventsStream, err)
		}
	}
}

// Names of the streams. The package blob names that of contents.
const (
	EventsStream = "EVENTS"
	DeltasStream = "DELTAS"
)

// Options are the settings that an installation may choose.
type Options struct {
	Replicas      int           // of EVENTS and BLOBS: 1 embedded, 3 in a cluster
	DeltaMaxAge   time.Duration // how long streaming fragments are kept
	DeltaMaxBytes int64         // maximum bytes of fragments; the server reserves that much disk space
	Refuse        func() error  // returns why commands are refused now (an Unavailable), nil if they are stored
}

// DefaultOptions are those of a single node.
var DefaultOptions = Options{Replicas: 1, DeltaMaxAge: 7 * 24 * time.Hour, DeltaMaxBytes: 1 << 30}

// EventsConfig returns the configuration of the stream of facts. Events have no time limit and are never rewritten; a
// full stream refuses new ones. Sync to disk on every append is a setting of the server (sync_interval: always), not
// of the stream.
func EventsConfig(o Options) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               EventsStream,
		Description:        "every fact, for ever",
		Subjects:           []string{events.AllEvents},
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew,
		Storage:            jetstream.FileStorage,
		Replicas:           o.Replicas,
		Compression:        jetstream.S2Compression,
		Duplicates:         2 * time.Minute,
		DenyDelete:         true,
		DenyPurge:          true,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Metadata:           map[string]string{"config": "1"},
	}
}

// DeltasConfig returns the configuration of the stream of fragments. The server acknowledges them before they are on
// disk, because the closing event of a part has the whole text.
func DeltasConfig(o Options) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        DeltasStream,
		Description: "streaming fragments",
		Subjects:    []string{events.AllDeltas},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     jetstream.FileStorage,
		Replicas:    1, // async persistence exists for one replica only
		MaxAge:      o.DeltaMaxAge,
		MaxBytes:    o.DeltaMaxBytes,
		AllowDirect: true,
		PersistMode: jetstream.AsyncPersistMode,
		Metadata:    map[string]string{"config": "1"},
	}
}
