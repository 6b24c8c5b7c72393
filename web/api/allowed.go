package api

import (
	"context"
	"errors"
	"net/http"

	"pocketcoder/events"
)

// WhileAllowed is the context of an answer that lasts: it ends with the login, and once may says no. may said yes at since, and is
// asked again whenever the chat may have come to somebody else.
func (s *Server) WhileAllowed(r *http.Request, who Caller, chat string, since uint64, may func() error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		defer cancel()
		// What keeps it from going on asking ends the answer too.
		_ = s.Tail.Follow(ctx, since, events.ChatFilter(chat), func(e events.Event) error {
			return s.StillAllowed(ctx, e, may)
		}, func(uint64) error { return nil })
	}()
	go func() {
		select {
		case <-s.Accounts.Ended(who.Session):
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// StillAllowed asks may again after an event that can change its answer. ErrStop is a no.
func (s *Server) StillAllowed(ctx context.Context, e events.Event, may func() error) error {
	if e.Subject.Kind != (events.ChatUpdated{}).Kind() && e.Subject.Kind != (events.Deleted{}).Kind() {
		return nil
	}
	if err := s.Model.Wait(ctx, e.Seq); err != nil {
		return err
	}
	err := may()
	if errors.As(err, new(Problem)) {
		return events.ErrStop
	}
	return err
}
