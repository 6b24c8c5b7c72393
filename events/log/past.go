package log

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
)

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
