package projections

import (
	"context"
	"errors"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// decoded is an event with its body, or with the reason why it has none.
type decoded struct {
	events.Event
	body any
	err  error
}

// maxCommit is how many events are committed together at most: more only makes those who wait for the first wait longer.
const maxCommit = 4 * log.MaxBatch

// follow reads the log after the given sequence and calls commit with what has arrived, decoded, until ctx ends or commit
// returns an error; events.ErrStop ends it without one. It decodes while commit is busy. caughtUp says there was no more.
func follow(ctx context.Context, l *log.Log, after uint64, commit func(batch []decoded, caughtUp bool) error) error {
	type arrival struct {
		batch    []decoded
		caughtUp bool
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := make(chan arrival, 1)
	go func() {
		cancel(l.Read(ctx, after, nil, func(b log.Batch) error {
			select {
			case arrived <- arrival{decodeAll(b.Events), b.Behind == 0}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a := <-arrived:
			for more := true; more && len(a.batch) < maxCommit; {
				select {
				case next := <-arrived:
					a = arrival{append(a.batch, next.batch...), next.caughtUp}
				default:
					more = false
				}
			}
			if err := commit(a.batch, a.caughtUp); errors.Is(err, events.ErrStop) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
}

func decodeAll(batch []events.Event) []decoded {
	all := make([]decoded, len(batch))
	for i, e := range batch {
		body, err := decode(e)
		all[i] = decoded{e, body, err}
	}
	return all
}
