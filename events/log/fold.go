package log

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/log/direct"
)

// Position is how far a reader has read the events that match some filters. A reader that stores its position reads
// only new events, however long the log is.
type Position = direct.Position

// Start returns the position before the first event.
func Start(filters ...string) *Position { return direct.Start(filters...) }

// StartAfter returns the position behind a sequence.
func StartAfter(seq uint64, filters ...string) *Position { return direct.StartAfter(seq, filters...) }

// WithoutTimeout returns a context whose readers wait for the server without a limit. A server that is busy can take
// long to find the few events of a filter among millions.
func WithoutTimeout(ctx context.Context) context.Context { return direct.Patient(ctx) }

// Fold calls fn with every event that is stored now after the given sequence and matches filter, in order. It returns
// the sequence of the last one, or after if there is none. It needs no consumer.
func (l *Log) Fold(ctx context.Context, filter string, after uint64, fn func(events.Event) error) (uint64, error) {
	p := StartAfter(after, filter)
	err := l.Advance(ctx, p, fn)
	return max(after, p.Last(filter)), err
}

// FoldTo is Fold for the events up to a sequence, which is that of an event that matches filter.
func (l *Log) FoldTo(ctx context.Context, filter string, after, end uint64, fn func(events.Event) error) error {
	return l.events().ReadTo(ctx, filter, after, end, l.each(ctx, fn))
}

// Advance calls fn with every event that is stored now and that the position does not include: filter by filter, and
// in order under each. The position then includes them, also those before an error.
func (l *Log) Advance(ctx context.Context, p *Position, fn func(events.Event) error) error {
	return l.events().Advance(ctx, p, l.each(ctx, fn))
}

// Newest returns the sequence of the newest event that matches one of the subjects, 0 if there is none.
func (l *Log) Newest(ctx context.Context, subjects ...string) (uint64, error) {
	return l.events().Newest(ctx, subjects...)
}

// NewestEach calls fn with the newest event of each subject, at most 1,024, that matches one of the filters. It returns
// a sequence up to which these are complete: 0 if the server does not list them.
func (l *Log) NewestEach(ctx context.Context, fn func(events.Event) error, filters ...string) (uint64, error) {
	return l.events().NewestEach(ctx, filters, l.each(ctx, fn))
}

// events returns EVENTS for a read from a position.
func (l *Log) events() direct.Stream {
	return direct.Stream{Reader: l.direct, FromStart: l.scans, Name: EventsStream, Alone: l.replicas == 1, Last: l.Last}
}

// each returns a function that calls fn with the event in a message.
func (l *Log) each(ctx context.Context, fn func(events.Event) error) func(*nats.Msg, uint64) error {
	return func(m *nats.Msg, seq uint64) error {
		e, err := l.storedDirect(ctx, m, seq)
		if err != nil {
			return err
		}
		return fn(e)
	}
}

// Get returns the event at a sequence, and whether there is one. It reads this event alone, and a Fold reads as many
// as fit into an answer.
func (l *Log) Get(ctx context.Context, seq uint64) (e events.Event, ok bool, err error) {
	m, err := l.direct.Get(ctx, EventsStream, map[string]any{"seq": seq})
	if err == nil && m != nil {
		e, err = l.storedDirect(ctx, m, seq)
	}
	if err != nil {
		return e, false, fmt.Errorf("read event #%d: %w", seq, err)
	}
	return e, m != nil, nil
}
