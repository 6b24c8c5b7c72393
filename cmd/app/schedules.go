package app

import (
	"context"

	"pocketcoder/bridge/watch"
	"pocketcoder/handlers/schedule"
)

func (s *System) wireSchedules() {
	s.schedules = &schedule.Schedules{Log: s.log, Chats: s.chats, Accounts: s.accounts}
	s.tools.Schedules, s.gate.NoteOn = s.schedules, s.tools.PreviewTask
	s.tools.Preview = s.previews().Of
}

func (s *System) previews() schedule.Previews {
	return schedule.Previews{Gate: s.gate, ChatsOf: s.model.ChatsOf}
}

// watchSchedules runs on each node that handles commands. They start each run once.
func (s *System) watchSchedules(ctx context.Context) error {
	return watch.Schedules{Schedules: s.schedules, Chats: s.chats, Model: s.model,
		Logger: s.o.Logger, Uncertain: s.uncertain}.Run(ctx)
}
