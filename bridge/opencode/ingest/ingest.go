// Package ingest stores what OpenCode reports: each fact of its stream becomes an event of the log, in the chat of its
// session. Fragments of text and output go to DELTAS. Heartbeats, and what OpenCode reports while it starts, are only
// counted.
//
//	burst      the stream, event by event. It binds each new session to its chat, that of a subagent to the chat of its
//	           parent. Any other session that PocketCoder did not create gets a new chat
//	reconcile  what was missed: durable events by their sequence, the rest by comparing OpenCode with the read models.
//	           It records the requests that OpenCode forgot (permission.interrupted), has the outbox send a message again
//	           that nothing answered, or else records its turn as lost, with the text that was streamed
//	idle       turns that OpenCode has left without an end
//
// Promises:
//   - A durable event of OpenCode is in the log once, in the order of its session, even if one side was away or has
//     crashed.
//   - After WaitConnected the log holds what OpenCode held when the connection was made.
//   - An event that cannot be stored as it came is stored whole under the type "unstorable".
//
// The package must not know how a decision reaches OpenCode, or how OpenCode is run.
package ingest

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
	"pocketcoder/projections"
)

// Ingest stores what one OpenCode reports as events of the log, and holds its sessions and the connection to it. The
// bursts of the stream are taken in the order in which they arrive.
type Ingest struct {
	Engine    string
	Directory string // absolute; where the outbox creates sessions
	Log       *log.Log
	Model     *projections.Model
	Logger    *slog.Logger

	// Client returns the client of the running OpenCode. It waits for one that is starting.
	Client func(context.Context) (*client.Client, error)

	// Resend sends a message again that OpenCode has accepted and nothing has answered. It reports whether OpenCode has
	// accepted it again. After an error Ingest reconnects and tries again.
	Resend func(context.Context, projections.PendingMessage) (accepted bool, err error)

	// Compare is called after each connection, when the log holds what OpenCode holds, and before the outbox sends
	// anything but what Resend sends. After an error Ingest reconnects and tries again. It may be nil.
	Compare func(context.Context) error

	// Uncertain returns a sequence from a loss of events until Compare has ended, 0 otherwise. A message that was
	// submitted before it is not sent again, because both sides may have lost its answer. It may be nil.
	Uncertain func() uint64

	// KeepOriginal receives each permission request that contains a secret, before Ingest stores its redacted form. After
	// each connection, it receives those that OpenCode still lists. Without a gate it is nil.
	KeepOriginal func(events.PermissionRequest)

	Pause   time.Duration // between attempts to connect to OpenCode, to store what it reports, and to reply to it
	Changed func()        // called when Condition may have changed

	// IdleLimit is how long nothing changes in an idle session with a message that has not ended, before the session is
	// compared with OpenCode. See DefaultIdleLimit.
	IdleLimit time.Duration

	tracker tracker
	taking  sync.Mutex          // held while events of OpenCode are taken, and for the three fields below
	running map[string]bool     // running tool parts
	idle    map[string]idleTurn // by session
	resent  map[string]bool     // messages that were sent again
	current atomic.Pointer[client.Client]
	live    readiness
	last    atomic.Uint64 // sequence of the newest event that Ingest appended
	stored  atomic.Uint64
	ignored atomic.Uint64
	lastErr atomic.Pointer[string]
}

const DefaultPause = 500 * time.Millisecond

// The keys under which the metadata of a session that the outbox makes names a chat.
const (
	MetadataChat = "pocketcoder_chat" // the chat of the session

	// MetadataFork names the new chat while the session is being forked. OpenCode copies the metadata with the session
	// (behaviour fork-metadata), so Ingest knows the copy by its first event, whenever that comes.
	MetadataFork = "pocketcoder_fork"
)

// Current returns the client of the last OpenCode to which there was a connection, nil before the first connection.
func (in *Ingest) Current() *client.Client { return in.current.Load() }

// WaitConnected waits until OpenCode is connected and the log holds what OpenCode holds.
func (in *Ingest) WaitConnected(ctx context.Context) error { return in.live.wait(ctx) }

// Reconnected returns a channel that is closed when OpenCode is connected the next time.
func (in *Ingest) Reconnected() <-chan struct{} { return in.live.next() }

// Load reads from the read model which sessions exist and which events of them the log holds. It must be called first,
// after the read model has caught up.
func (in *Ingest) Load(ctx context.Context) error {
	known, err := in.Model.Sessions(ctx, in.Engine)
	if err != nil {
		return err
	}
	for _, s := range known {
		in.tracker.put(s.ID, trackedSession{chat: s.Chat, parent: s.Parent, directory: s.Directory,
			progress: progress{seq: s.Seq}})
	}
	return nil
}

// Run keeps Ingest connected until ctx ends: connect, reconcile, ingest, and again.
func (in *Ingest) Run(ctx context.Context) error {
	in.running, in.resent = map[string]bool{}, map[string]bool{}
	for {
		err := in.connected(ctx)
		in.live.close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		text := err.Error()
		in.lastErr.Store(&text)
		in.Changed()
		in.Logger.Info("opencode connection lost", "err", err)
		if err := sleep.For(ctx, in.Pause); err != nil {
			return err
		}
	}
}

func (in *Ingest) connected(ctx context.Context) error {
	c, err := in.Client(ctx)
	if err != nil {
		return err
	}
	in.current.Store(c)
	ready := false
	return c.Stream(ctx, client.Silence, func(burst []client.Event) error {
		in.taking.Lock()
		defer in.taking.Unlock()
		if !ready { // the first event is server.connected: from here on no event is missed
			if err := in.reconcile(ctx); err != nil {
				return err
			}
			ready = true
			in.lastErr.Store(nil)
			in.live.open()
			in.Changed()
		}
		if err := in.takeLive(ctx, burst); err != nil {
			return err
		}
		return in.watchIdle(ctx, burst)
	})
}

// Condition is the state of the connection to OpenCode, as a part of the system's health.
type Condition struct {
	Connected bool   `json:"connected"` // to OpenCode, and reconciled
	Sessions  int    `json:"sessions"`
	Stored    uint64 `json:"stored"` // OpenCode events appended since the start
	Noise     uint64 `json:"noise"`  // OpenCode events that were not stored
	Error     string `json:"error,omitempty"`
}

func (in *Ingest) Condition() Condition {
	s := Condition{Connected: in.live.isOpen(), Sessions: len(in.tracker.seqs()), Stored: in.stored.Load(),
		Noise: in.ignored.Load()}
	if text := in.lastErr.Load(); text != nil {
		s.Error = *text
	}
	return s
}

// readiness is set while OpenCode is connected and reconciled. Only then the outbox calls OpenCode.
type readiness struct {
	mu      sync.Mutex
	opened  chan struct{} // closed while open
	opening chan struct{} // closed when it is opened the next time
	isReady bool
}

func (r *readiness) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isReady {
		close(r.channel())
		r.isReady = true
		if r.opening != nil {
			close(r.opening)
			r.opening = nil
		}
	}
}

func (r *readiness) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isReady {
		r.opened, r.isReady = nil, false
	}
}

func (r *readiness) isOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isReady
}

func (r *readiness) wait(ctx context.Context) error {
	r.mu.Lock()
	opened := r.channel()
	r.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *readiness) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opening == nil {
		r.opening = make(chan struct{})
	}
	return r.opening
}

func (r *readiness) channel() chan struct{} {
	if r.opened == nil {
		r.opened = make(chan struct{})
	}
	return r.opened
}
