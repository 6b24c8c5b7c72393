package channel

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
)

// Tries limits the work for one update of a messenger, so that no update stops its channel.
type Tries struct {
	Most  int           // tries of one update
	Each  time.Duration // time of one try
	Pause time.Duration // after the first try; it triples after each further one
}

// DefaultTries are the limits outside tests. An update that fails each time is skipped within nine minutes.
var DefaultTries = Tries{Most: 5, Each: time.Minute, Pause: 5 * time.Second}

// HandOver calls handle until it succeeds or ctx ends. It reports whether it skipped the update, because all tries
// failed. A try does not count if the log did not store events at that time: then each update would fail. The logger
// names the update.
func (t Tries) HandOver(ctx context.Context, logger *slog.Logger, handle func(context.Context) error) (skipped bool) {
	for failed, pause := 0, t.Pause; ; {
		err, late := t.try(ctx, handle)
		if err == nil || ctx.Err() != nil {
			return false
		}
		unavailable := log.IsUnavailable(err) || errors.As(err, new(log.Unavailable))
		if late || !unavailable {
			failed++
		}
		if failed >= t.Most {
			logger.Error("skipped an update of a channel", "tries", failed, "err", err)
			return true
		}
		logger.Error("handle an update of a channel", "failed", failed, "again", pause, "err", err)
		if sleep.For(ctx, pause) != nil {
			return false
		}
		if late || !unavailable {
			pause *= 3
		}
	}
}

// try calls handle once. late reports whether the time of the try was over.
func (t Tries) try(ctx context.Context, handle func(context.Context) error) (err error, late bool) {
	trying, cancel := context.WithTimeout(ctx, t.Each)
	defer cancel()
	err = handle(trying)
	return err, trying.Err() != nil
}
