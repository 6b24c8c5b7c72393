package store

import (
	"context"
	"errors"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// decoded is an event with its body, or with the error of decoding it.
type decoded struct {
	events.Event
	body any
	err  error
}

// maxCommit is the maximal number of events in one commit. More would only delay callers that wait for the first of them.
const maxCommit = 4 * log.MaxBatch

// follow reads the log after the given sequence and calls commit with the decoded events that have arrived. It decodes while
// commit is running. caughtUp reports whether the batch reached the end of the log. follow returns when ctx ends or commit
// returns an error; events.ErrStop ends it without an error.
func (m *Model) follow(ctx context.Context, after uint64, commit func(batch []decoded, caughtUp bool) error) error {
	type arrival struct {
		batch    []decoded
		caughtUp bool
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := make(chan arrival, 1)
	go func() {
		cancel(m.log.Read(ctx, after, nil, func(b log.Batch) error {
			select {
			case arrived <- arrival{decodeAll(m.definition.Decode, b.Events), b.Behind == 0}:
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

func decodeAll(decode func(events.Event) (any, error), batch []events.Event) []decoded {
	all := make([]decoded, len(batch))
	for i, e := range batch {
		body, err := decode(e)
		all[i] = decoded{e, body, err}
	}
	return all
}
