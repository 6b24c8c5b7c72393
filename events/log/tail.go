package log

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
)

// Tail is one reader of the log for any number of followers, because a stream takes a limited number of consumers. A
// follower that falls behind stops receiving live events and reads from the log again; no other follower waits for it.
// Tail is safe for concurrent use.
type Tail struct {
	log *Log

	mu        sync.Mutex
	seq       uint64                            // of the last event that was passed on
	followers map[string]map[*follower]struct{} // by index
}

// NewTail returns a tail. While Run runs, its followers receive the events that are appended.
func NewTail(l *Log) *Tail {
	return &Tail{log: l, followers: map[string]map[*follower]struct{}{}}
}

// Number of retries after the reader failed, and the pause before each. A server that restarts is back within that
// time.
const (
	tailTries = 30
	tailPause = time.Second
)

// Run reads the log from its present end until ctx ends, or until the log cannot be read for half a minute.
func (t *Tail) Run(ctx context.Context) error {
	last, err := t.log.Last(ctx)
	if err != nil {
		return fmt.Errorf("run tail: %w", err)
	}
	t.begin(last)
	for try := 1; ; try++ {
		from := t.at()
		err := t.log.Read(ctx, from, nil, t.pass)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if t.at() > from {
			try = 1
		}
		if try == tailTries {
			return fmt.Errorf("run tail: %w", err)
		}
		if err := sleep.For(ctx, tailPause); err != nil {
			return err
		}
	}
}

// Follow calls fn with every event after the given sequence that matches filter, in order, each once, until ctx ends
// or fn returns an error; ErrStop ends it without an error. caughtUp is called once, after the stored events and
// before the live ones: fn has received every matching event up to seq. events.ParseFilter must accept filter.
func (t *Tail) Follow(ctx context.Context, after uint64, filter string, fn func(events.Event) error,
	caughtUp func(seq uint64) error) error {
	err := t.follow(ctx, after, filter, fn, caughtUp)
	switch {
	case errors.Is(err, events.ErrStop):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

func (t *Tail) follow(ctx context.Context, after uint64, filter string, fn func(events.Event) error,
	caughtUp func(uint64) error) error {
	f := &follower{filter: strings.Split(filter, "."), news: make(chan struct{}, 1)}
	passed := t.add(f) // before the log is read: what is not stored by then comes live
	defer t.remove(f)
	for told := false; ; told = true {
		var err error
		if after, err = t.log.Fold(ctx, filter, after, fn); err != nil {
			return err
		}
		if !told {
			if err := caughtUp(max(after, passed)); err != nil {
				return err
			}
		}
		if after, err = f.live(ctx, after, fn); err != nil {
			return err
		}
	}
}

// begin sets the sequence at which the reader starts. Present followers have not received earlier events, so they read
// again.
func (t *Tail) begin(seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq = seq
	for _, all := range t.followers {
		for f := range all {
			f.lose()
		}
	}
}

func (t *Tail) at() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seq
}

// pass sends a batch to the followers whose filter it matches.
func (t *Tail) pass(b Batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range b.Events {
		subject := strings.Split(e.RawSubject, ".")
		t.offer(anything, subject, e)
		if i := index(subject); i != anything {
			t.offer(i, subject, e)
		}
		t.seq = e.Seq
	}
	return nil
}

func (t *Tail) offer(index string, subject []string, e events.Event) {
	for f := range t.followers[index] {
		if events.MatchesFilter(f.filter, subject) {
			f.take(e)
		}
	}
}

func (t *Tail) add(f *follower) (passed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := index(f.filter)
	if t.followers[i] == nil {
		t.followers[i] = map[*follower]struct{}{}
	}
	t.followers[i][f] = struct{}{}
	return t.seq
}

func (t *Tail) remove(f *follower) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := index(f.filter)
	if delete(t.followers[i], f); len(t.followers[i]) == 0 {
		delete(t.followers, i)
	}
}

// Limits of the queue of one follower.
const (
	maxQueued      = 256
	maxQueuedBytes = 4 << 20
)

// follower receives live events.
type follower struct {
	filter []string
	news   chan struct{} // holds one when something was queued, or lost

	mu     sync.Mutex
	queued []events.Event
	bytes  int
	behind bool // what came lately was not kept
}

func (f *follower) take(e events.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.behind {
		return
	}
	if len(f.queued) == maxQueued || f.bytes+len(e.Data) > maxQueuedBytes {
		f.drop()
		return
	}
	f.queued, f.bytes = append(f.queued, e), f.bytes+len(e.Data)
	f.wake()
}

func (f *follower) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
}

func (f *follower) drop() {
	f.queued, f.bytes, f.behind = nil, 0, true
	f.wake()
}

func (f *follower) wake() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// live passes on queued and new events with sequences above after, until events were lost. It then queues again, so
// that the log holds all missing events.
func (f *follower) live(ctx context.Context, after uint64, fn func(events.Event) error) (uint64, error) {
	for {
		select {
		case <-ctx.Done():
			return after, ctx.Err()
		case <-f.news:
		}
		f.mu.Lock()
		queued, behind := f.queued, f.behind
		f.queued, f.bytes, f.behind = nil, 0, false
		f.mu.Unlock()
		if behind {
			return after, nil
		}
		for _, e := range queued {
			if e.Seq <= after {
				continue
			}
			if err := ctx.Err(); err != nil { // the subscriber may have lost access
				return after, err
			}
			if err := fn(e); err != nil {
				return after, err
			}
			after = e.Seq
		}
	}
}

// indexed is the number of words of a subject by which followers are found: evt.chat.<chat>. So an event of a chat
// costs the followers of another chat nothing.
const indexed = 3

// anything is the index of filters that have a wildcard among those words.
const anything = ""

// index returns the first words of a subject or filter, or anything for a filter with a wildcard among them.
func index(words []string) string {
	if len(words) < indexed {
		return anything
	}
	for _, w := range words[:indexed] {
		if w == "*" || w == ">" {
			return anything
		}
	}
	return strings.Join(words[:indexed], ".")
}
