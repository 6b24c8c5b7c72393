package projections

import (
	"context"
	"log/slog"
	"time"
)

// Watch calls look until ctx ends: at once, after each batch that calls Tx.Wake, and when the time has passed that look
// returned. After a failure, which it logs, it calls look again when pause has passed. At each call, queries see every
// event in the log. name says what is watched.
func (m *Model) Watch(ctx context.Context, logger *slog.Logger, name string, pause time.Duration,
	look func(ctx context.Context) (next time.Duration, err error)) error {
	for {
		woken := m.Woken()
		next, err := pause, m.CatchUp(ctx) // read models that are being rebuilt are behind the log
		if err == nil {
			next, err = look(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			logger.Warn("watch "+name, "err", err)
			next = pause
		}
		waiting, cancel := context.WithTimeout(ctx, next)
		_ = m.Awake(waiting, woken)
		cancel()
	}
}
