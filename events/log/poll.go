package log

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
)

// While nothing is published, the pause between two requests of a poll doubles from pollMin to pollMax. The server
// stores a message a moment after readers receive it, so the next request follows after pollMin.
const (
	pollMin = 10 * time.Millisecond
	pollMax = time.Second
)

// poll calls fn with every message that was stored after the given sequence and matches one of filters, in order, each
// once. It continues with new messages until ctx ends, or fn or caughtUp returns an error. It calls caughtUp each time
// fn has received all stored messages. It creates no consumer, because a reader's account may not.
func (l *Log) poll(ctx context.Context, stream string, filters []string, after uint64,
	fn func(*nats.Msg, uint64) error, caughtUp func() error) error {
	common, published := covering(filters), make(chan struct{}, 1)
	sub, err := l.nc.Subscribe(common, func(*nats.Msg) {
		select {
		case published <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	var parts [][]string
	for _, f := range filters {
		parts = append(parts, strings.Split(f, "."))
	}
	var failed error // of fn
	pass := func(m *nats.Msg, seq uint64) error {
		subject := strings.Split(m.Header.Get(jetstream.SubjectHeader), ".")
		if slices.ContainsFunc(parts, func(f []string) bool { return events.MatchesFilter(f, subject) }) {
			failed = fn(m, seq)
		}
		return failed
	}
	for answered, pause := false, pollMin; ; {
		asking, end := l.whileConnected(ctx)
		after, err = l.direct.Read(asking, stream, common, after, pass)
		end()
		switch {
		case failed != nil:
			return failed
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (!answered || l.nc.IsClosed()):
			return err
		case err == nil: // after the first answer, poll repeats failed requests: the server restarts
			if err := caughtUp(); err != nil {
				return err
			}
			answered = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, pollMax)
		case <-published:
			pause = pollMin
			_ = sleep.For(ctx, pollMin)
		}
	}
}

// whileConnected returns a context that ends when the connection is lost, because the answer to a request is lost with
// it.
func (l *Log) whileConnected(ctx context.Context) (connected context.Context, end func()) {
	connected, cancel := context.WithCancel(ctx)
	lost := l.nc.StatusChanged(nats.RECONNECTING)
	go func() {
		select {
		case <-lost:
			cancel()
		case <-connected.Done():
		}
	}()
	return connected, func() {
		cancel()
		l.nc.RemoveStatusListener(lost)
	}
}

// covering returns a filter that matches all that one of filters matches.
func covering(filters []string) string {
	if len(filters) == 1 {
		return filters[0]
	}
	common := strings.Split(filters[0], ".")
	for _, f := range filters { // checked for the first filter, too, because its last word is not common
		words, n := strings.Split(f, "."), 0
		for n < min(len(common), len(words)-1) && common[n] == words[n] {
			n++
		}
		common = common[:n]
	}
	return strings.Join(append(common, ">"), ".")
}

// pollEvents is Read without a consumer.
func (l *Log) pollEvents(ctx context.Context, after uint64, filters []string, fn func(Batch) error) error {
	var b Batch
	size, begun := 0, false
	flush := func() error {
		if begun && len(b.Events) == 0 {
			return nil
		}
		full := b
		b, size, begun = Batch{}, 0, true
		return fn(full)
	}
	return l.poll(ctx, EventsStream, filters, after, func(m *nats.Msg, seq uint64) error {
		if len(b.Events) == MaxBatch || size >= maxBatchBytes {
			pending, _ := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			b.Behind = pending + 1 // m is not in the batch
			if err := flush(); err != nil {
				return err
			}
		}
		e, err := l.storedDirect(ctx, m, seq)
		if err != nil {
			return err
		}
		b.Events, size = append(b.Events, e), size+len(e.Data)
		return nil
	}, flush)
}

// pollDeltas is ReadDeltas without a consumer.
func (l *Log) pollDeltas(ctx context.Context, since time.Time, filters []string, fn func(Delta)) error {
	after, err := l.before(ctx, DeltasStream, covering(filters), since)
	if err != nil {
		return fmt.Errorf("read deltas: %w", err)
	}
	return l.poll(ctx, DeltasStream, filters, after, func(m *nats.Msg, _ uint64) error {
		fn(delta(m.Header.Get(jetstream.SubjectHeader), m))
		return ctx.Err()
	}, ctx.Err)
}

// storedDirect returns the event in an answer of a direct get.
func (l *Log) storedDirect(ctx context.Context, m *nats.Msg, seq uint64) (events.Event, error) {
	at, _ := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	return l.stored(ctx, m.Header.Get(jetstream.SubjectHeader), m.Header, m.Data, seq, at)
}
