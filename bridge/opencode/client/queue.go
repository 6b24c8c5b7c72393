package client

import (
	"errors"
	"sync"
)

// errStopped tells the reader that the consumer wants no more.
var errStopped = errors.New("the consumer stopped")

// queue holds what one goroutine has read until another takes it, in order, bounded by bytes. An event over the bound
// is let in alone.
type queue struct {
	mu     sync.Mutex
	change *sync.Cond
	events []Event
	bytes  int
	limit  int
	end    error // why no more will come
	done   bool  // the consumer stopped
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.change = sync.NewCond(&q.mu)
	return q
}

// push adds an event, waiting for room.
func (q *queue) push(e Event) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.done && len(q.events) > 0 && q.bytes+e.size() > q.limit {
		q.change.Wait()
	}
	if q.done {
		return errStopped
	}
	q.events = append(q.events, e)
	q.bytes += e.size()
	q.change.Broadcast()
	return nil
}

// finish records that no more events will come, and why.
func (q *queue) finish(end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end = end
	q.change.Broadcast()
}

// stop makes push fail from now on.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done = true
	q.change.Broadcast()
}

// drain calls fn with all events, in batches of those that have arrived. It returns fn's error, or the one given to
// finish.
func (q *queue) drain(fn func([]Event) error) error {
	for {
		batch, end := q.take()
		if len(batch) == 0 {
			return end
		}
		if err := fn(batch); err != nil {
			return err
		}
	}
}

// take waits for events and returns up to maxBatch of them. It returns none at the end.
func (q *queue) take() ([]Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.events) == 0 && q.end == nil {
		q.change.Wait()
	}
	n := min(len(q.events), maxBatch)
	batch := q.events[:n:n]
	if q.events = q.events[n:]; len(q.events) == 0 {
		q.events = nil // releases the memory of the events
	}
	for _, e := range batch {
		q.bytes -= e.size()
	}
	q.change.Broadcast()
	return batch, q.end
}
