package opencode

import (
	"context"
	"fmt"

	"pocketcoder/events/log"
)

// reconcile makes the log hold what OpenCode holds: after a start, a reconnect, a crash on either side. Durable events
// are fetched by sequence. What OpenCode keeps in memory only (status, asks, questions) is compared with the read model,
// and the difference appended as the events that would have come. Live events wait behind in the stream meanwhile.
func (b *Bridge) reconcile(ctx context.Context, in *ingest) error {
	if err := b.fetchHistory(ctx, in); err != nil {
		return err
	}
	there, err := b.look(ctx)
	if err != nil {
		return err
	}
	// Once more: what was over when we looked has an end in the history now, and is not taken for lost.
	if err := b.fetchHistory(ctx, in); err != nil {
		return err
	}
	if err := b.Model.Wait(ctx, b.last.Load()); err != nil {
		return err
	}
	c := comparison{Bridge: b, present: there}
	// The statuses are appended before the turns are compared, because the state of a turn depends on the status of its session.
	for _, compare := range []func(context.Context) error{c.statuses, c.turns, c.asks, c.questions} {
		c.missing = nil
		err := compare(ctx)
		if err == nil {
			err = in.append(ctx, c.missing)
		}
		if err == nil {
			err = b.Model.Wait(ctx, b.last.Load())
		}
		if err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
	}
	return nil
}

// fetchHistory appends the durable events the log lacks, of all sessions.
func (b *Bridge) fetchHistory(ctx context.Context, in *ingest) error {
	history, err := b.api().History(ctx, b.tracker.seqs())
	if err != nil {
		return err
	}
	for len(history) > 0 {
		n := min(len(history), log.MaxBatch)
		if err := in.take(ctx, history[:n], true); err != nil {
			return err
		}
		history = history[n:]
	}
	return nil
}
