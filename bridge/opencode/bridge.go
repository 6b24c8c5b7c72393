// Package opencode is the bridge to an OpenCode server: it supervises the server, stores its events in the log,
// and carries out in OpenCode what people decided.
//
//	Supervisor  runs OpenCode as a child: own directories, own configuration, restarts, clean stop, no orphans
//	Bridge      OpenCode's events become events of the log; messages, decisions, aborts, forks and reverts reach OpenCode
//
// Promise: the workspace cannot configure OpenCode. Supervisor refuses to start one whose effective configuration lets any
// tool run without asking.
package opencode

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events/log"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
)

// Bridge connects one OpenCode with the log: what it says becomes events (ingest, reconcile), what people decided
// reaches it (deliver, reply, abort, revert, fork).
type Bridge struct {
	Engine      string
	Directory   string // absolute; where sessions work that we make
	Log         *log.Log
	Model       *projections.Model
	Chats       *chat.Chats
	Records     *record.Records
	Permissions *permission.Permissions
	Limits      *budget.Budgets
	Logger      *slog.Logger

	// Client gives the client of the OpenCode that runs now, waiting for one while it is being started.
	Client func(context.Context) (*client.Client, error)

	Default    string          // "provider/model" of chats without a selection; empty for the model that OpenCode recommends
	MaxTurns   int             // across chats, at once; 0 is no limit
	RetryAfter []time.Duration // pauses between tries to deliver a message, before it fails
	Pause      time.Duration   // between tries of what is tried for ever: to hear OpenCode, to store what it says, to reply to it
	Changed    func()          // told when Condition may have changed

	tracker tracker
	resent  map[string]bool // messages sent again because nothing had answered them; of the goroutine that reconciles
	current atomic.Pointer[client.Client]
	known   atomic.Pointer[client.Models]
	live    gate
	last    atomic.Uint64 // sequence of the newest event we appended
	stored  atomic.Uint64
	noise   atomic.Uint64
	lastErr atomic.Pointer[string]
}

// DefaultRetryAfter are the pauses before a message that OpenCode does not take is given up: five, 155 s in all.
var DefaultRetryAfter = []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second}

// DefaultPause is the delivered Pause.
const DefaultPause = 500 * time.Millisecond

func (b *Bridge) api() *client.Client { return b.current.Load() }

// Load learns from the read model which sessions there are and how far the log holds each. The model must have caught
// up. It comes before everything else.
func (b *Bridge) Load(ctx context.Context) error {
	known, err := b.Model.Sessions(ctx, b.Engine)
	if err != nil {
		return err
	}
	for _, s := range known {
		b.tracker.put(s.ID, tracked{chat: s.Chat, parent: s.Parent, directory: s.Directory, seq: s.Seq})
	}
	return nil
}

// Run keeps the bridge connected until ctx ends: connect, reconcile, ingest, and again.
func (b *Bridge) Run(ctx context.Context) error {
	in := &ingest{Bridge: b, running: map[string]bool{}}
	b.resent = map[string]bool{}
	for {
		err := b.connected(ctx, in)
		b.live.close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		text := err.Error()
		b.lastErr.Store(&text)
		b.Changed()
		b.Logger.Info("opencode connection lost", "err", err)
		if err := pause(ctx, b.Pause); err != nil {
			return err
		}
	}
}

// connected is one connection's life.
func (b *Bridge) connected(ctx context.Context, in *ingest) error {
	c, err := b.Client(ctx)
	if err != nil {
		return err
	}
	b.current.Store(c)
	ready := false
	return c.Stream(ctx, client.Silence, func(burst []client.Event) error {
		if !ready { // the first is server.connected: from here on nothing is missed, what came before is fetched now
			if err := b.reconcile(ctx, in); err != nil {
				return err
			}
			ready = true
			b.lastErr.Store(nil)
			b.live.open()
			b.Changed()
		}
		err := in.take(ctx, burst, false)
		if errors.Is(err, errGap) {
			b.Logger.Warn("opencode stream", "err", err)
			if err = b.fetchHistory(ctx, in); err == nil {
				err = in.take(ctx, burst, false)
			}
		}
		return err
	})
}

// Condition is the bridge's part of the system's health.
type Condition struct {
	Connected bool   `json:"connected"` // to OpenCode, and reconciled
	Sessions  int    `json:"sessions"`
	Stored    uint64 `json:"stored"` // OpenCode events appended since the start
	Noise     uint64 `json:"noise"`  // and those that are no facts
	Error     string `json:"error,omitempty"`
}

// Condition says how the bridge is.
func (b *Bridge) Condition() Condition {
	s := Condition{Connected: b.live.isOpen(), Sessions: len(b.tracker.seqs()), Stored: b.stored.Load(), Noise: b.noise.Load()}
	if text := b.lastErr.Load(); text != nil {
		s.Error = *text
	}
	return s
}

// gate is open while the bridge is connected and reconciled: only then does anything go out to OpenCode.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while open
	isDone bool
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isDone {
		close(g.channel())
		g.isDone = true
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isDone {
		g.opened, g.isDone = nil, false
	}
}

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isDone
}

// wait blocks until the gate is open.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	opened := g.channel()
	g.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) channel() chan struct{} {
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
	return g.opened
}
