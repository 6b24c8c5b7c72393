package log

import "context"

// CheckWorkers checks the workers as WatchWorkers does at each tick.
func (l *Log) CheckWorkers(ctx context.Context) { l.checkWorkers(ctx) }

// Pass offloads the contents of all chats that are not done.
func (w *OffloadWorker) Pass(ctx context.Context, done map[string]string) error {
	return w.pass(ctx, done)
}
