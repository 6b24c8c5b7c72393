package app

import (
	"context"

	"pocketcoder/bridge/schedules"
	"pocketcoder/handlers/schedule"
)

func (s *System) wireSchedules() {
	s.schedules = &schedule.Schedules{Log: s.log, Accounts: s.accounts}
}

// watchSchedules runs on each node that handles commands. They start each run once.
func (s *System) watchSchedules(ctx context.Context) error {
	return schedules.Watch{Schedules: s.schedules, Chats: s.chats, Log: s.log, Model: s.model,
		Logger: s.o.Logger}.Run(ctx)
}
