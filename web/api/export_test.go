package api

import (
	"context"

	"pocketcoder/web/query"
)

// Catalogue is all collections, for tests that go through them.
func Catalogue() query.Catalogue { return catalogue }

// Occupy takes an account's share of the views.
func (s *Server) Occupy(ctx context.Context, collection, account string) error {
	for range maxShare {
		if _, err := s.shares.take(ctx, collection+"/"+account); err != nil {
			return err
		}
	}
	return nil
}

// HoldFewer bounds how many clients an address and an account may have, before there is any.
func (s *Server) HoldFewer(address, account int) {
	s.realtime.addressClients, s.realtime.accountClients = address, account
}

// Followed is how many topics of a client are kept.
func (s *Server) Followed(clientID string) int {
	c := s.realtime.client(clientID)
	s.realtime.mu.Lock()
	defer s.realtime.mu.Unlock()
	return len(c.follows)
}
