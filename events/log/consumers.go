package log

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumer is a durable consumer that this process runs. Log.working guards it.
type consumer struct {
	name    string
	opened  bool   // it was created or found
	floor   uint64 // sequence up to which it has handled all its events
	idle    int    // number of checks since the floor moved, while events waited
	trouble string // why it does no work; empty if it works
}

const (
	checkPause   = 5 * time.Second // between two checks
	maxIdle      = 12              // checks without progress; a minute
	checkTimeout = 3 * time.Second // of one consumer
)

// register registers a consumer until end is called.
func (l *Log) register(name string) (w *consumer, end func()) {
	w = &consumer{name: name}
	l.working.Lock()
	defer l.working.Unlock()
	if l.consumers == nil {
		l.consumers = map[*consumer]bool{}
	}
	l.consumers[w] = true
	return w, func() {
		l.working.Lock()
		defer l.working.Unlock()
		delete(l.consumers, w)
	}
}

// setOpened notes the result of an attempt to open a consumer.
func (l *Log) setOpened(w *consumer, name string, err error) {
	l.working.Lock()
	defer l.working.Unlock()
	if w.name, w.opened, w.trouble = name, err == nil, ""; err != nil {
		w.trouble = fmt.Sprintf("the consumer %s cannot be opened: %v", w.name, err)
	}
}

// WatchConsumers checks until ctx ends whether the consumers of this process make progress. It counts its own ticks, so
// that a paused process does not report its consumers.
func (l *Log) WatchConsumers(ctx context.Context) error {
	tick := time.NewTicker(checkPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.checkConsumers(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Log) checkConsumers(ctx context.Context) {
	l.working.Lock()
	all := slices.Collect(maps.Keys(l.consumers))
	all = slices.DeleteFunc(all, func(w *consumer) bool { return !w.opened })
	l.working.Unlock()
	for _, w := range all {
		looking, end := context.WithTimeout(ctx, checkTimeout)
		c, err := l.js.Consumer(looking, EventsStream, w.name)
		end()
		l.working.Lock()
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			w.trouble = fmt.Sprintf("the consumer %s is missing; restart PocketCoder", w.name)
		} else if err == nil { // the health of the log reports other errors
			w.observe(c.CachedInfo())
		}
		l.working.Unlock()
	}
}

// observe compares the state of the consumer with the last one.
func (w *consumer) observe(c *jetstream.ConsumerInfo) {
	waiting := c.NumPending + uint64(c.NumAckPending)
	if w.idle++; waiting == 0 || c.AckFloor.Stream != w.floor {
		w.floor, w.idle = c.AckFloor.Stream, 0
	}
	w.trouble = ""
	if w.idle >= maxIdle {
		w.trouble = fmt.Sprintf("the consumer %s has not advanced for %d s; %d events wait after #%d", w.name,
			int((time.Duration(w.idle) * checkPause).Seconds()), waiting, w.floor)
	}
}

// StalledConsumers returns why consumers of this process do no work, in the order of their names. It returns nil if all
// work.
func (l *Log) StalledConsumers() (reasons []string) {
	l.working.Lock()
	defer l.working.Unlock()
	for w := range l.consumers {
		if w.trouble != "" {
			reasons = append(reasons, w.trouble)
		}
	}
	slices.Sort(reasons)
	return reasons
}
