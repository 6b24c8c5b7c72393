package api

import (
	"context"
)

// Fill counts as many bytes of unread answers to an account as it may have, until release is called.
func (s *Server) Fill(collection, account string) (release func(), err error) {
	return s.answers.hold(collection+"/"+account, maxHeld)
}

// Occupy takes an account's share of the views.
func (s *Server) Occupy(ctx context.Context, collection, account string) error {
	for range maxShare {
		if _, err := s.shares.take(ctx, collection+"/"+account); err != nil {
			return err
		}
	}
	return nil
}
