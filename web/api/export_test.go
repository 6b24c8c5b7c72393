package api

import (
	"context"
)

// Occupy takes an account's share of the views.
func (s *Server) Occupy(ctx context.Context, collection, account string) error {
	for range maxShare {
		if _, err := s.shares.take(ctx, collection+"/"+account); err != nil {
			return err
		}
	}
	return nil
}
