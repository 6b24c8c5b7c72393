package api

import (
	"context"
	"sync"

	"github.com/pocketbase/dbx"
)

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
