package wire

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A busy server holds its offer back for loadStep per command it runs, up to loadMost of them: long enough that the
// offer of a less busy one comes first (measured between processes of one machine, an offer is granted within 0.2 ms),
// short beside a command.
var loadStep = 2 * time.Millisecond

const loadMost = 8

// slots are the commands a server may run at once, and the line of those that wait for their turn to offer. An offer
// holds a slot, because it may be granted at any time.
type slots struct {
	capacity int           // 0 is no limit
	step     time.Duration // loadStep when they were made

	mu      sync.Mutex
	held    int
	queue   []*waiter
	changed chan struct{} // closed, and made anew, when a slot or the head of the line may be free
}

// waiter is a place in the line.
type waiter struct{ since time.Time }

func newSlots(capacity int) *slots {
	return &slots{capacity: capacity, step: loadStep, changed: make(chan struct{})}
}

// take waits for a slot, first come first served, and calls full when there is none. It fails when one of the contexts
// is done.
func (s *slots) take(ctx, other context.Context, onFull func()) bool {
	me := &waiter{time.Now()}
	s.mu.Lock()
	s.queue = append(s.queue, me)
	defer func() {
		s.queue = slices.DeleteFunc(s.queue, func(t *waiter) bool { return t == me })
		s.wake()
		s.mu.Unlock()
	}()
	for notified := false; ctx.Err() == nil && other.Err() == nil; {
		isFull, wait, changed := s.capacity > 0 && s.held >= s.capacity, s.wait(me), s.changed
		if !isFull && wait <= 0 {
			s.held++
			return true
		}
		s.mu.Unlock()
		if isFull && !notified {
			onFull()
			notified = true
		}
		s.sleep(ctx, other, wait, changed)
		s.mu.Lock()
	}
	return false
}

// wait is how long it is to somebody's turn, counting from now; only the head of the line has one. The lock is held.
func (s *slots) wait(t *waiter) time.Duration {
	if s.queue[0] != t {
		return time.Hour // until the line moves
	}
	return s.step*time.Duration(min(s.held, loadMost)) - time.Since(t.since)
}

func (s *slots) sleep(ctx, other context.Context, d time.Duration, changed <-chan struct{}) {
	if d <= 0 {
		d = time.Hour // full: until a slot is free
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	case <-other.Done():
	}
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.wake()
}

// wake wakes all who wait. The lock is held.
func (s *slots) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}
