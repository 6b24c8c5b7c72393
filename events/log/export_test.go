package log

import "context"

// CheckConsumers checks the consumers as WatchConsumers does at each tick.
func (l *Log) CheckConsumers(ctx context.Context) { l.checkConsumers(ctx) }

// Pass offloads the contents of all chats that are not done.
func (w *OffloadWorker) Pass(ctx context.Context, done map[string]string) error {
	return w.pass(ctx, done)
}
