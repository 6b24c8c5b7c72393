package log

import "context"

// CheckWorkers checks the workers as WatchWorkers does at each tick.
func (l *Log) CheckWorkers(ctx context.Context) { l.checkWorkers(ctx) }
