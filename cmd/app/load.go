package app

import (
	"context"
	"fmt"
	"time"

	"pocketcoder/projections"
)

// load waits until the read model has caught up with the log as it was at the start. Once this node leads, it calls
// prepare.
func (s *System) load(ctx context.Context) error {
	last, err := s.log.Last(ctx)
	if err != nil {
		return err
	}
	if err := s.catchUp(ctx, last); err != nil {
		return err
	}
	if s.lease != nil {
		close(s.loaded)
		s.change()
	}
	if err := once(s.leading, s.prepare)(ctx); err != nil {
		return err
	}
	if s.lease == nil {
		close(s.loaded)
	}
	close(s.prepared)
	s.change()
	<-ctx.Done()
	return ctx.Err()
}

// prepare prepares the actors of the engine. It loads the sessions into ingest. It records as lost the commands that
// were requested and have no result, because the previous process or node died.
func (s *System) prepare(ctx context.Context) error {
	if err := s.model.CatchUp(ctx); err != nil { // the previous node has stopped, so no later event of it follows
		return err
	}
	if err := s.ingest.Load(ctx); err != nil {
		return fmt.Errorf("load sessions: %w", err)
	}
	running, err := s.model.RunningExecutions(ctx)
	if err != nil {
		return err
	}
	for _, x := range running {
		if err := s.exec.RecordLost(ctx, x.Chat, x.ID); err != nil {
			return err
		}
	}
	return nil
}

// holdUncertain holds effects that may have been carried out already: events are lost, or a backup was restored, so the
// log cannot tell. After a loss that is found while this process runs, the next start does it, because the read models
// of this process still have the lost events.
func (s *System) holdUncertain(ctx context.Context) error {
	before := s.nats.Uncertain()
	_, stale, err := s.nats.Stale()
	if before == 0 || stale || err != nil {
		return err
	}
	if err := s.outbox.Hold(ctx, before); err != nil {
		return err
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
