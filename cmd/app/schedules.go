package app

import (
	"context"

	"pocketcoder/bridge/watch"
)

// watchSchedules runs on each node that handles commands. They start each run once.
func (s *System) watchSchedules(ctx context.Context) error {
	return watch.Schedules{Schedules: s.schedules, Chats: s.chats, Model: s.model,
		Logger: s.o.Logger, Uncertain: s.losses.atStart}.Run(ctx)
}
