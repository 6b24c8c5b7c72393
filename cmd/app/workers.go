package app

import (
	"context"

	"pocketcoder/bridge/workers"
	"pocketcoder/handlers"
	"pocketcoder/handlers/exec"
	"pocketcoder/handlers/worker"
	queries "pocketcoder/projections/workers"
)

func (s *System) wireWorkers() {
	s.workers = &worker.Workers{Log: s.log, Chats: s.chats, Records: s.records, Workspace: s.o.Workspace,
		Limits: worker.Limits{All: s.o.MaxWorkers}, EndCommands: s.endCommands, Active: s.activeWorkers}
	s.tools.Workers = s.workers
}

// activeWorkers returns the workers that are active at the end of the log.
func (s *System) activeWorkers(ctx context.Context) ([]string, error) {
	last, err := s.log.Last(ctx)
	if err == nil {
		err = s.model.Wait(ctx, last)
	}
	if err != nil {
		return nil, err
	}
	return queries.Active(ctx, s.model)
}

// endCommands ends the commands of a chat in the name of an actor.
func (s *System) endCommands(ctx context.Context, chat, actor string) error {
	last, err := s.log.Last(ctx)
	if err == nil {
		err = s.model.Wait(ctx, last)
	}
	if err != nil {
		return err
	}
	return workers.EndCommands(ctx, s.model, chat, func(ctx context.Context, id, signal string) error {
		c := exec.Signal{Command: handlers.Command{Actor: actor}, Execution: id, Signal: signal}
		_, err := s.engineNode.Signal(ctx, c)
		return err
	})
}

func (s *System) watchWorkers(ctx context.Context) error {
	return workers.Watch{Workers: s.workers, Log: s.log, Model: s.model, Logger: s.o.Logger,
		SilentAfter: s.o.WorkerSilence}.Run(ctx)
}
