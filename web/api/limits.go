package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/pocketbase/dbx"
	"golang.org/x/time/rate"
)

// Rate limit of one address on the routes that check a password or a token. Each account also has its own back-off,
// which applies from every address.
const (
	authRate  = 2
	authBurst = 20

	maxAddresses = 10_000 // remembered at once
)

// limits has a rate limiter for each address. The zero value is ready.
type limits struct {
	mu sync.Mutex
	by map[string]*rate.Limiter
}

// Limit refuses a network that has used routes which check a password or a token too often.
func (s *Server) Limit(network string) error { return s.limits.allow(network) }

func (l *limits) allow(address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, ok := l.by[address]
	if !ok {
		if l.by == nil || len(l.by) >= maxAddresses {
			l.removeIdle()
		}
		limiter = rate.NewLimiter(authRate, authBurst)
		l.by[address] = limiter
	}
	if !limiter.Allow() {
		return Problem{Status: http.StatusTooManyRequests, Message: "Too Many Requests.", Retry: time.Second}
	}
	return nil
}

// removeIdle removes the addresses whose limiter is full again. If none is, it removes all.
func (l *limits) removeIdle() {
	kept := map[string]*rate.Limiter{}
	for address, limiter := range l.by {
		if limiter.Tokens() < authBurst {
			kept[address] = limiter
		}
	}
	if len(kept) >= maxAddresses {
		kept = map[string]*rate.Limiter{}
	}
	l.by = kept
}

// Limits of slow queries that run at once: lists (a page of large records is slow even without a filter), expansions,
// replays and the changes of a topic. The remaining views are for quick reads: records by id, reads by writes, and
// store.List.
const (
	maxSlowQueries           = 6 // of 12 views
	maxSlowQueriesPerAccount = 2 // of an account, or of an address without one
)

// querySlots limits the slow queries of each account and of all accounts together. The zero value is ready.
type querySlots struct {
	mu    sync.Mutex
	slots chan struct{}
	by    map[string]*accountSlots
}

// accountSlots are the slots of an account. They exist while at least one query holds one or waits for one.
type accountSlots struct {
	slots chan struct{}
	users int
}

// SlowView reads the read models while it holds a query slot of a key (Caller.Key).
func (s *Server) SlowView(ctx context.Context, key string, read func(db dbx.Builder, seq uint64) error) error {
	release, err := s.querySlots.acquire(ctx, key)
	if err != nil {
		return err
	}
	defer release()
	return s.Model.View(ctx, read)
}

// AcquireQuerySlot waits until a key (Caller.Key) may run a slow query. The caller must call release when the query
// has ended. The empty key is the server.
func (s *Server) AcquireQuerySlot(ctx context.Context, key string) (release func(), err error) {
	return s.querySlots.acquire(ctx, key)
}

// acquire waits for a slot of the key. The caller must call release when the query has ended. The empty key is the
// server.
func (s *querySlots) acquire(ctx context.Context, key string) (release func(), err error) {
	own, all := s.enter(key)
	for _, slots := range []chan struct{}{own, all} {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			if slots == all {
				<-own
			}
			s.leave(key)
			return nil, ctx.Err()
		}
	}
	return func() {
		<-all
		<-own
		s.leave(key)
	}, nil
}

func (s *querySlots) enter(key string) (own, all chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by, s.slots = map[string]*accountSlots{}, make(chan struct{}, maxSlowQueries)
	}
	if s.by[key] == nil {
		limit := maxSlowQueriesPerAccount
		if key == "" {
			limit = maxSlowQueries
		}
		s.by[key] = &accountSlots{slots: make(chan struct{}, limit)}
	}
	s.by[key].users++
	return s.by[key].slots, s.slots
}

func (s *querySlots) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[key].users--; s.by[key].users == 0 {
		delete(s.by, key)
	}
}

// An answer is in memory until its client has read it. Without a limit, an account that sends many requests and reads
// slowly would fill the memory of the machine.
const (
	maxUnsent = 128 << 20 // bytes of all answers to one account at once, four of the largest lists

	answerTimeout = time.Minute // for a whole answer, and a second more for each answerRate bytes
	answerRate    = 1_000_000
)

// unsentBytes counts the bytes that wait for the clients of each account, by Caller.Key. The zero value is ready.
type unsentBytes struct {
	mu    sync.Mutex
	byKey map[string]int
}

// reserve counts an answer of n bytes until release is called. It refuses an answer that exceeds maxUnsent together
// with the others of the key.
func (a *unsentBytes) reserve(key string, n int) (release func(), err error) {
	if !a.add(key, n) {
		return nil, Problem{Status: http.StatusTooManyRequests, Retry: 10 * time.Second,
			Message: fmt.Sprintf("Answers to one account are at most %d MiB at once. Read the others first. A change that this request made remains.", maxUnsent>>20)}
	}
	return func() { a.remove(key, n) }, nil
}

// add counts n bytes until they are removed. It returns false, and counts nothing, if they exceed maxUnsent together
// with the others of the key. A single answer above the limit, such as the replay of a very long chat, is accepted if
// it is the only one.
func (a *unsentBytes) add(key string, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey[key] > 0 && a.byKey[key]+n > maxUnsent {
		return false
	}
	if a.byKey == nil {
		a.byKey = map[string]int{}
	}
	a.byKey[key] += n
	return true
}

func (a *unsentBytes) remove(key string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := a.byKey[key] - n; left > 0 {
		a.byKey[key] = left
	} else {
		delete(a.byKey, key)
	}
}

// AddUnsent counts n bytes of events that wait for a client, together with the answers to the same Caller.Key. It
// returns false, and counts nothing, if they exceed the limit. The caller must remove them with RemoveUnsent.
func (s *Server) AddUnsent(key string, n int) bool { return s.unsent.add(key, n) }

// RemoveUnsent removes bytes that AddUnsent counted.
func (s *Server) RemoveUnsent(key string, n int) { s.unsent.remove(key, n) }
