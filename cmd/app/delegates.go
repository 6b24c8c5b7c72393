package app

import (
	"context"

	"pocketcoder/bridge/watch"
	"pocketcoder/handlers"
	"pocketcoder/handlers/delegate"
	"pocketcoder/handlers/exec"
)

func (s *System) wireDelegates() {
	s.delegates = &delegate.Delegates{Log: s.log, Chats: s.chats, Records: s.records, In: s.placeOfDelegates,
		Limits: delegate.Limits{All: s.o.MaxDelegates}, EndCommands: s.endCommands,
		Active: s.model.ActiveDelegates}
}

// placeOfDelegates is a delegate.Delegates.In.
func (s *System) placeOfDelegates(ctx context.Context, chat string) (p delegate.Place, err error) {
	if err := s.model.CatchUp(ctx); err != nil { // the chat may be new
		return p, err
	}
	c, _, err := s.model.Chat(ctx, chat)
	if err == nil {
		p.Workspace, err = s.directory(ctx, c.Engine)
	}
	p.Git = func(ctx context.Context, directory, script string) (string, error) {
		e, release, err := s.engines.Use(ctx, c.Engine)
		if err != nil {
			return "", err
		}
		defer release()
		return e.exec.RunOwn(ctx, directory, script)
	}
	return p, err
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

func (s *System) watchDelegates(ctx context.Context) error {
	return watch.Delegates{Delegates: s.delegates, Log: s.log, Model: s.model, Logger: s.o.Logger,
		SilentAfter: s.o.DelegateSilence}.Run(ctx)
}
