package app

import (
	"context"

	"pocketcoder/bridge/watch"
	"pocketcoder/handlers"
	"pocketcoder/handlers/exec"
	"pocketcoder/handlers/worker"
)

func (s *System) wireWorkers() {
	s.workers = &worker.Workers{Log: s.log, Chats: s.chats, Records: s.records, Workspace: s.o.Workspace,
		Limits: worker.Limits{All: s.o.MaxWorkers}, EndCommands: s.endCommands, Git: s.exec.RunOwn,
		Active: func(ctx context.Context) ([]string, error) { return watch.ActiveWorkers(ctx, s.model) }}
	s.tools.Workers = s.workers
}

// endCommands ends the commands of a chat in the name of an actor.
func (s *System) endCommands(ctx context.Context, chat, actor string) error {
	if err := s.model.CatchUp(ctx); err != nil {
		return err
	}
	return watch.EndCommands(ctx, s.model, chat, func(ctx context.Context, id, signal string) error {
		c := exec.Signal{Command: handlers.Command{Actor: actor}, Execution: id, Signal: signal}
		_, err := s.engineNode.Signal(ctx, c)
		return err
	})
}

func (s *System) watchWorkers(ctx context.Context) error {
	return watch.Workers{Workers: s.workers, Log: s.log, Model: s.model, Logger: s.o.Logger,
		SilentAfter: s.o.WorkerSilence}.Run(ctx)
}
