package wire

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A busy server delays its offer by loadStep for each running command, at most loadMost of them. So the offer of a less
// busy server comes first. On one machine an offer is granted within 0.2 ms (measured).
var loadStep = 2 * time.Millisecond

const loadMost = 8

// slots are the concurrent commands of a server, and the queue of calls that wait to offer. An offer takes a slot,
// because it may be granted at any time.
type slots struct {
	capacity int           // 0 is no limit
	step     time.Duration // loadStep when the slots were created

	mu      sync.Mutex
	held    int
	queue   []*waiter
	changed chan struct{} // closed and replaced when a slot is free or the head of the queue changes
}

// waiter is a call in the queue.
type waiter struct{ since time.Time }

func newSlots(capacity int) *slots {
	return &slots{capacity: capacity, step: loadStep, changed: make(chan struct{})}
}

// take waits for a slot, in order of arrival. It calls onFull once if there is none. It returns false if one of the
// contexts is done.
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

// wait returns how long a waiter must still wait. s.mu must be held.
func (s *slots) wait(t *waiter) time.Duration {
	if s.queue[0] != t {
		return time.Hour // until the queue changes
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

// wake wakes all waiters. s.mu must be held.
func (s *slots) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}
