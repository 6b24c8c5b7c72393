package store

import (
	"context"
	"errors"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// decodedEvent is an event with its body, or with the error of decoding it.
type decodedEvent struct {
	events.Event
	body any
	err  error
}

// maxCommit is the maximal number of events in one commit. More would only delay callers that wait for the first of
// them.
const maxCommit = 4 * log.MaxBatch

// follow reads the log after the given sequence and calls commit with the decoded events that have arrived. It decodes
// while commit is running. With bulk it waits for a large batch, or for the end of the log. caughtUp reports whether
// the batch reached that end. follow returns when ctx ends or commit returns an error; events.ErrStop ends it without
// an error.
func (m *Model) follow(ctx context.Context, after uint64, bulk bool,
	commit func(batch []decodedEvent, caughtUp bool) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := make(chan decodedBatch, 1)
	go func() {
		var next decodedBatch
		cancel(m.log.Read(ctx, after, nil, func(b log.Batch) error {
			next.add(b, m.definition.Decode)
			if bulk && !next.isLarge() && !next.caughtUp {
				return nil
			}
			select {
			case arrived <- next:
				next = decodedBatch{}
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
					a = decodedBatch{append(a.batch, next.batch...), next.size, next.caughtUp}
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

type decodedBatch struct {
	batch    []decodedEvent
	size     int // of their bodies, in bytes
	caughtUp bool
}

func (a *decodedBatch) add(b log.Batch, decode func(events.Event) (any, error)) {
	a.batch, a.caughtUp = append(a.batch, decodeAll(decode, b.Events)...), b.Behind == 0
	for _, e := range b.Events {
		a.size += len(e.Data)
	}
}

// A batch of a bulk load is large with so many events, or bytes of bodies. A row that many events change is written
// once for each batch. Larger batches cost memory and save little more (measured).
const (
	bulkEvents = 20 * log.MaxBatch
	bulkBytes  = 16 << 20
)

func (a *decodedBatch) isLarge() bool { return len(a.batch) >= bulkEvents || a.size >= bulkBytes }

func decodeAll(decode func(events.Event) (any, error), batch []events.Event) []decodedEvent {
	all := make([]decodedEvent, len(batch))
	for i, e := range batch {
		body, err := decode(e)
		all[i] = decodedEvent{e, body, err}
	}
	return all
}
