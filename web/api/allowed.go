package api

import (
	"context"
	"errors"
	"net/http"

	"pocketcoder/events"
)

// WhileAllowed returns the context of a long answer about a chat. The context ends with the login, and when may
// returns a Problem. may succeeded at the sequence since; it is called again when the chat may have a new owner.
func (s *Server) WhileAllowed(r *http.Request, caller Caller, chat string, since uint64,
	may func() error) (context.Context, context.CancelFunc) {
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
		case <-s.Accounts.Ended(caller.Session):
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// StillAllowed calls may again after an event that can change its answer. It returns events.ErrStop when the access
// has ended.
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
