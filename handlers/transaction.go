package handlers

import (
	"context"
	"errors"

	"pocketcoder/events/log"
)

// MaxTransaction is the most commands a transaction takes. Each one after the first folds its state again.
const MaxTransaction = 200

// transaction holds the events that commands have decided together and not yet appended.
type transaction struct {
	commands int
	writes   []log.Write
	expected map[string]bool // filters
	seen     uint64          // the highest sequence that a command without events has returned
}

type transactionKey struct{}

func transactionOf(ctx context.Context) *transaction {
	t, _ := ctx.Value(transactionKey{}).(*transaction)
	return t
}

// InTransaction reports whether commands with ctx belong to a transaction. Such commands append nothing yet.
func InTransaction(ctx context.Context) bool { return transactionOf(ctx) != nil }

// Transaction carries out the commands that fn sends with its context, one after the other: all of them or, if fn
// returns an error, none. Each decision includes the events of the commands before it. A command returns sequence 0, or
// the sequence of its event if it was carried out before. seq is the sequence of the last event.
//
// The events are stored as one atomic batch. The batch is refused if an event was appended meanwhile that one of the
// decisions depends on. Then fn is called again, so it must only send commands. A command without events adds no
// condition to the batch.
func Transaction(ctx context.Context, l *log.Log, fn func(ctx context.Context) error) (seq uint64, err error) {
	for try := range maxTries {
		if err := pauseBefore(ctx, try); err != nil {
			return 0, err
		}
		t := &transaction{expected: map[string]bool{}}
		if err := fn(context.WithValue(ctx, transactionKey{}, t)); err != nil {
			return 0, err
		}
		if len(t.writes) == 0 {
			return t.seen, nil
		}
		seq, err = l.Commit(ctx, t.writes)
		if !errors.Is(err, log.ErrConflict) {
			return seq, err
		}
	}
	return 0, Refuse(Conflict, tooBusy, maxTries)
}

// unstored is the sequence of the first event that is not stored yet, beyond all that are.
const unstored = 1 << 63

// IsStored reports whether a sequence is that of a stored event, not of an event that a transaction has decided and
// not appended yet.
func IsStored(seq uint64) bool { return seq < unstored }

// add takes what a command came to. A filter is expected once, as the first command that decided on it saw it.
func (t *transaction) add(writes []log.Write, seq uint64) error {
	if t.commands++; t.commands > MaxTransaction {
		return Refuse(Invalid, "This makes more than %d changes at once. Make fewer.", MaxTransaction)
	}
	t.seen = max(t.seen, seq)
	for _, w := range writes {
		if t.expected[w.Expect.Filter] {
			w.Expect = log.Expect{}
		}
		t.expected[w.Expect.Filter] = true
		w.Event.Seq = unstored + uint64(len(t.writes))
		t.writes = append(t.writes, w)
	}
	return nil
}
