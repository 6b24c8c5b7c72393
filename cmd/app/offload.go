package app

import (
	"context"
	"time"

	"pocketcoder/events/offload"
)

// offload moves contents of archived chats to the directory for them, if there is one.
func (s *System) offload(ctx context.Context) error {
	if s.o.OffloadDir == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	archived := func(ctx context.Context, since time.Time) (chats []offload.Chat, err error) {
		rows, err := s.model.Archived(ctx, since)
		for _, c := range rows {
			chats = append(chats, offload.Chat{ID: c.ID, Updated: max(c.Updated, c.LastActive)})
		}
		return chats, err
	}
	w := offload.Worker{Log: s.log, Dir: s.o.OffloadDir, After: s.o.OffloadAfter, Archived: archived, Logger: s.o.Logger}
	return w.Run(ctx)
}
