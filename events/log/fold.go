package log

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// storedDirect returns the event in an answer of a direct get.
func (l *Log) storedDirect(ctx context.Context, m *nats.Msg, seq uint64) (events.Event, error) {
	at, _ := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	return l.stored(ctx, m.Header.Get(jetstream.SubjectHeader), m.Header, m.Data, seq, at)
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

// At returns the sequence of the newest event that was stored before t, 0 if there is none.
func (l *Log) At(ctx context.Context, t time.Time) (uint64, error) {
	return l.before(ctx, EventsStream, events.AllEvents, t)
}

// before returns a sequence of a stream. Messages that match filter and were stored since t come after it.
func (l *Log) before(ctx context.Context, stream, filter string, t time.Time) (uint64, error) {
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("find the last message of %s before %s: %w", stream, t.Format(time.RFC3339), err)
	}
	s, err := l.js.Stream(ctx, stream) // first: what is stored from now on comes after its last message
	if err != nil {
		return fail(err)
	}
	m, err := l.direct.Get(ctx, stream, map[string]any{"start_time": t, "next_by_subj": filter})
	if err != nil {
		return fail(err)
	}
	if m == nil { // nothing since
		return s.CachedInfo().State.LastSeq, nil
	}
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return fail(err)
	}
	return seq - 1, nil
}

// Stored returns the time at which the event at seq was stored, or the next event if there is none at seq. It returns
// the zero time if there is neither.
func (l *Log) Stored(ctx context.Context, seq uint64) (time.Time, error) {
	m, err := l.direct.Get(ctx, EventsStream, map[string]any{"seq": max(seq, 1), "next_by_subj": events.AllEvents})
	if err != nil || m == nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return time.Time{}, fmt.Errorf("find the time of #%d: %w", seq, err)
	}
	return at, nil
}
