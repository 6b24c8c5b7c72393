package api

import (
	"context"
	"sync"

	"github.com/pocketbase/dbx"
)

// How many slow reads run at once: lists (a page of large records is slow even without a filter), expansions,
// replays and the changes of a topic. The other views stay free for quick reads: records by id, and reads by writes.
const (
	maxAsking = 6 // of 8 views
	maxShare  = 2 // of an account, or of an address without one
)

// shares limits the slow queries of each account and of all accounts together. The zero value is ready.
type shares struct {
	mu     sync.Mutex
	asking chan struct{}
	by     map[string]*share
}

// share is the part of an account, while at least one query holds it or waits for it.
type share struct {
	asking chan struct{}
	users  int
}

// Ask reads the read models within the share of a holder.
func (s *Server) Ask(ctx context.Context, holder string, question func(db dbx.Builder, seq uint64) error) error {
	release, err := s.shares.take(ctx, holder)
	if err != nil {
		return err
	}
	defer release()
	return s.Model.View(ctx, question)
}

// Share waits until a holder may run a slow query. The caller must call release when the query has ended. The empty
// holder is the server.
func (s *Server) Share(ctx context.Context, holder string) (release func(), err error) {
	return s.shares.take(ctx, holder)
}

// take waits until the holder may run a query. The caller must call release when it has ended. The empty holder is the
// server.
func (s *shares) take(ctx context.Context, holder string) (release func(), err error) {
	own, all := s.enter(holder)
	for _, slots := range []chan struct{}{own, all} {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			if slots == all {
				<-own
			}
			s.leave(holder)
			return nil, ctx.Err()
		}
	}
	return func() {
		<-all
		<-own
		s.leave(holder)
	}, nil
}

func (s *shares) enter(holder string) (own, all chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by, s.asking = map[string]*share{}, make(chan struct{}, maxAsking)
	}
	if s.by[holder] == nil {
		most := maxShare
		if holder == "" {
			most = maxAsking
		}
		s.by[holder] = &share{asking: make(chan struct{}, most)}
	}
	s.by[holder].users++
	return s.by[holder].asking, s.asking
}

func (s *shares) leave(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[holder].users--; s.by[holder].users == 0 {
		delete(s.by, holder)
	}
}
