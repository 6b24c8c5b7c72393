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

// worker is a worker of this process. Log.working guards it.
type worker struct {
	name    string // of its consumer
	opened  bool   // the consumer was created or found
	floor   uint64 // sequence up to which it has handled all its events
	idle    int    // number of checks since the floor moved, while events waited
	trouble string // why it does no work; empty if it works
}

const (
	workerPause  = 5 * time.Second // between two checks
	maxIdle      = 12              // checks without progress; a minute
	checkTimeout = 3 * time.Second // of one worker
)

// startWorker registers a worker until end is called.
func (l *Log) startWorker(name string) (w *worker, end func()) {
	w = &worker{name: name}
	l.working.Lock()
	defer l.working.Unlock()
	if l.workers == nil {
		l.workers = map[*worker]bool{}
	}
	l.workers[w] = true
	return w, func() {
		l.working.Lock()
		defer l.working.Unlock()
		delete(l.workers, w)
	}
}

// setOpened notes the result of an attempt to open a consumer for a worker.
func (l *Log) setOpened(w *worker, name string, err error) {
	l.working.Lock()
	defer l.working.Unlock()
	if w.name, w.opened, w.trouble = name, err == nil, ""; err != nil {
		w.trouble = fmt.Sprintf("the consumer %s cannot be opened: %v", w.name, err)
	}
}

// WatchWorkers checks until ctx ends whether the workers of this process make progress. It counts its own ticks, so
// that a paused process does not report its workers.
func (l *Log) WatchWorkers(ctx context.Context) error {
	tick := time.NewTicker(workerPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.checkWorkers(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Log) checkWorkers(ctx context.Context) {
	l.working.Lock()
	all := slices.Collect(maps.Keys(l.workers))
	all = slices.DeleteFunc(all, func(w *worker) bool { return !w.opened })
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
func (w *worker) observe(c *jetstream.ConsumerInfo) {
	waiting := c.NumPending + uint64(c.NumAckPending)
	if w.idle++; waiting == 0 || c.AckFloor.Stream != w.floor {
		w.floor, w.idle = c.AckFloor.Stream, 0
	}
	w.trouble = ""
	if w.idle >= maxIdle {
		w.trouble = fmt.Sprintf("the consumer %s has not advanced for %d s; %d events wait after #%d", w.name,
			int((time.Duration(w.idle) * workerPause).Seconds()), waiting, w.floor)
	}
}

// StalledWorkers returns why workers of this process do no work, in the order of their names. It returns nil if all
// work.
func (l *Log) StalledWorkers() (reasons []string) {
	l.working.Lock()
	defer l.working.Unlock()
	for w := range l.workers {
		if w.trouble != "" {
			reasons = append(reasons, w.trouble)
		}
	}
	slices.Sort(reasons)
	return reasons
}
