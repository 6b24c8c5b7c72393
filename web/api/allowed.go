package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"pocketcoder/events"
	"pocketcoder/sleep"
)

// WhileAllowed returns the context of a long answer about a chat. The context ends with the login, and when may
// returns a Problem. may succeeded at the sequence since; it is called again when the chat may have a new owner.
func (s *Server) WhileAllowed(r *http.Request, caller Caller, chat string, since uint64,
	may func() error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		defer cancel()
		s.followWhileAllowed(ctx, chat, since, may)
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

// allowedTries is how often in a row the log may be unreadable, a second apart. Then the answer ends, because it is
// unknown whether it is still allowed.
const allowedTries = 10

func (s *Server) followWhileAllowed(ctx context.Context, chat string, since uint64, may func() error) {
	for try := 0; try < allowedTries; try++ {
		err := s.Tail.Follow(ctx, since, events.ChatFilter(chat), func(e events.Event) error {
			if err := s.StillAllowed(ctx, e, may); err != nil {
				return err
			}
			since, try = e.Seq, 0
			return nil
		}, func(uint64) error { return nil })
		if err == nil {
			return
		}
		if sleep.For(ctx, time.Second) != nil {
			return
		}
	}
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
