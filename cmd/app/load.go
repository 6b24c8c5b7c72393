package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"pocketcoder/projections"
)

// load waits until the read model has caught up with the log as it was at the start.
func (s *System) load(ctx context.Context) error {
	last, err := s.log.Last(ctx)
	if err != nil {
		return err
	}
	if err := s.catchUp(ctx, last); err != nil {
		return err
	}
	close(s.loaded)
	s.change()
	<-ctx.Done()
	return ctx.Err()
}

// comparisons are the engines that have been compared with the log after a loss of events.
type comparisons struct {
	atStart bool // events were lost, and what followed from those before was not compared
	mu      sync.Mutex
	done    map[string]uint64 // the end of the loss, by engine
}

// uncertain returns a sequence from a loss of events with which an engine was not compared, 0 for none.
func (s *System) uncertain(engine string) uint64 {
	s.losses.mu.Lock()
	defer s.losses.mu.Unlock()
	if before := s.nats.Uncertain(); s.losses.done[engine] != before {
		return before
	}
	return 0
}

// compared records that an engine was compared after a loss. Once all engines were that have something to do, the loss
// is no longer uncertain.
func (s *System) compared(ctx context.Context, engine string, before uint64) error {
	demands, err := s.model.Demands(ctx)
	if err != nil {
		return err
	}
	s.losses.mu.Lock()
	defer s.losses.mu.Unlock()
	if s.losses.done == nil {
		s.losses.done = map[string]uint64{}
	}
	s.losses.done[engine] = before
	for other := range demands {
		if _, err := s.directory(ctx, other); err == nil && s.losses.done[other] != before {
			return nil
		}
	}
	return s.nats.MarkCompared(before)
}

// catchUp waits until the read models include an event. It shows the progress.
func (s *System) catchUp(ctx context.Context, seq uint64) error {
	reached := make(chan error, 1)
	go func() { reached <- s.model.Wait(ctx, seq) }()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-reached:
			return err
		case <-tick.C:
			s.progress.Step("read model", fmt.Sprintf("computed from %d of %d events", s.model.Loaded(), seq))
		}
	}
}

// loading returns a projections.Loading until load is done.
func (s *System) loading() error {
	select {
	case <-s.loaded:
		return nil
	default:
		return projections.Loading{Done: s.model.Loaded(), Total: s.opened}
	}
}
