package api

import (
	"context"
)

// Fill counts maxUnsent bytes of unread answers to an account until release is called.
func (s *Server) Fill(collection, account string) (release func(), err error) {
	return s.unsent.reserve(collection+"/"+account, maxUnsent)
}

// Occupy acquires all query slots of an account.
func (s *Server) Occupy(ctx context.Context, collection, account string) error {
	for range maxSlowQueriesPerAccount {
		if _, err := s.querySlots.acquire(ctx, collection+"/"+account); err != nil {
			return err
		}
	}
	return nil
}
