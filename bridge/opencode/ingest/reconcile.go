package ingest

import (
	"context"
	"fmt"

	"pocketcoder/bridge/opencode/client"
)

// reconcile makes the log complete after a start or a reconnect. It fetches durable events by sequence. It compares the
// state that OpenCode holds only in memory (status, permission requests, questions) with the read model, and appends
// the difference as the missing events. Live events wait in the stream meanwhile.
func (in *Ingest) reconcile(ctx context.Context) error {
	if err := in.fetchHistory(ctx); err != nil {
		return err
	}
	held, err := in.readMemory(ctx)
	if err != nil {
		return err
	}
	// Fetch again: a turn that ended before readMemory must not count as lost.
	if err := in.fetchHistory(ctx); err != nil {
		return err
	}
	if err := in.Model.Wait(ctx, in.last.Load()); err != nil {
		return err
	}
	c := comparison{Ingest: in, memory: held}
	// The statuses are appended before the turns are compared, because the state of a turn depends on the status of its
	// session.
	for _, compare := range []func(context.Context) error{c.statuses, c.turns, c.permissions, c.questions} {
		c.missing = nil
		err := compare(ctx)
		if err == nil {
			err = in.append(ctx, c.missing)
		}
		if err == nil {
			err = in.Model.Wait(ctx, in.last.Load())
		}
		if err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
	}
	if in.Compare == nil {
		return nil
	}
	return in.Compare(ctx)
}

// fetchHistory appends the durable events the log lacks, of all sessions.
func (in *Ingest) fetchHistory(ctx context.Context) error {
	return in.Current().History(ctx, in.tracker.seqs(), func(page []client.Event) error {
		return in.take(ctx, page, true)
	})
}
