package configuration

import (
	"context"
	"slices"
	"time"

	"pocketcoder/bridge/opencode"
	"pocketcoder/events/log/sleep"
	"pocketcoder/projections"
)

// Restarts starts OpenCode again once no turn runs. Use NewRestarts.
type Restarts struct {
	engine string
	server *opencode.Supervisor
	model  *projections.Model
	wanted chan struct{}
}

func NewRestarts(engine string, server *opencode.Supervisor, model *projections.Model) *Restarts {
	return &Restarts{engine, server, model, make(chan struct{}, 1)}
}

// Want asks for a restart if the running OpenCode needs one. It does not block.
func (r *Restarts) Want() {
	select {
	case r.wanted <- struct{}{}:
	default:
	}
}

// Run restarts OpenCode after a call of Want, once no turn runs or waits for a person, until ctx ends.
func (r *Restarts) Run(ctx context.Context) error {
	for {
		select {
		case <-r.wanted:
		case <-ctx.Done():
			return ctx.Err()
		}
		for r.server.NeedsRestart() {
			seq := r.model.Seq()
			unfinished, err := r.model.UnfinishedTurns(ctx)
			unfinished = slices.DeleteFunc(unfinished, func(s projections.Session) bool { return s.Engine != r.engine })
			switch {
			case err == nil && len(unfinished) > 0:
				err = r.model.Wait(ctx, seq+1)
			case err == nil: // again, if an OpenCode that was about to start has the former configuration
				r.server.Restart()
				_ = sleep.For(ctx, time.Second)
			}
			if err != nil {
				return err
			}
		}
	}
}
