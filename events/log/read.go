package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/log/blob"
)

// Batch holds the events that had arrived, in order. It has 1 to MaxBatch events; only the first batch after reading
// began, or began again, is empty if nothing matches. Behind is the number of matching events still to come; 0 means
// that the reader has caught up.
type Batch struct {
	Events []events.Event
	Behind uint64
}

// Read calls fn with every event after the given sequence that matches one of filters (all events when there are
// none), and continues with new ones until ctx ends or fn returns an error. ErrStop ends it without an error. It does
// not wait to fill a batch.
func (l *Log) Read(ctx context.Context, after uint64, filters []string, fn func(Batch) error) error {
	if len(filters) == 0 {
		filters = []string{events.AllEvents}
	}
	for {
		var ended error // by fn
		reading, end := l.reader(ctx)
		err := l.read(reading, after, filters, func(b Batch) error {
			if n := len(b.Events); n > 0 {
				after = b.Events[n-1].Seq
			}
			ended = fn(b)
			return ended
		})
		reopened := errors.Is(context.Cause(reading), errReopened)
		end()
		switch {
		case errors.Is(err, events.ErrStop):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case ended != nil || !reopened:
			return err
		}
	}
}

// errReopened ends a reader whose consumer is gone, because the server has opened its streams again. The reader begins
// again.
var errReopened = errors.New("the streams were opened again")

// Reopened lets every reader begin again behind its last event, for a server that has opened its streams again.
// Without it the client library notices after two missing heartbeats that its consumer is gone.
func (l *Log) Reopened() {
	l.reading.Lock()
	defer l.reading.Unlock()
	for _, end := range l.readers {
		end(errReopened)
	}
}

// reader registers a reader until its context ends.
func (l *Log) reader(ctx context.Context) (reading context.Context, end func()) {
	reading, cancel := context.WithCancelCause(ctx)
	l.reading.Lock()
	defer l.reading.Unlock()
	if l.readers == nil {
		l.readers = map[context.Context]context.CancelCauseFunc{}
	}
	l.readers[reading] = cancel
	return reading, func() {
		cancel(nil)
		l.reading.Lock()
		defer l.reading.Unlock()
		delete(l.readers, reading)
	}
}

// readHeartbeat is how often the server sends a heartbeat to a reader that waits. After two missing ones the client
// library creates the consumer again.
const readHeartbeat = jetstream.PullHeartbeat(2 * time.Second)

func (l *Log) read(ctx context.Context, after uint64, filters []string, fn func(Batch) error) error {
	var consumer jetstream.Consumer
	opening, opened := context.WithTimeout(ctx, requestTimeout)
	err := untilOpen(opening, func(ctx context.Context) (err error) {
		consumer, err = l.js.OrderedConsumer(ctx, EventsStream, jetstream.OrderedConsumerConfig{
			FilterSubjects: filters, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
			InactiveThreshold: time.Minute,
		})
		return err
	})
	opened()
	if err != nil {
		return fmt.Errorf("read log after %d: %w", after, err)
	}
	nothing := consumer.CachedInfo().NumPending == 0
	arrived := make(chan jetstream.Msg, 2*MaxBatch)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		select {
		case arrived <- m:
		case <-ctx.Done(): // m is lost
		}
	}, jetstream.PullMaxMessages(4*MaxBatch), readHeartbeat)
	if err != nil {
		l.removeConsumer(EventsStream, consumer)
		return fmt.Errorf("read log after %d: %w", after, err)
	}
	defer func() {
		// Stop may wait 10 s for a request that the server lost (nats.go 1.55)
		if errors.Is(context.Cause(ctx), errReopened) {
			go consuming.Stop()
			return
		}
		consuming.Stop()
		l.removeConsumer(EventsStream, consumer)
	}()
	closed := consuming.Closed() // each call starts a goroutine
	if nothing {
		if err := fn(Batch{}); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return fmt.Errorf("read log after %d: the consumer was closed", after)
		case m := <-arrived:
			b, err := l.gather(ctx, m, arrived)
			if err != nil {
				return err
			}
			if err := fn(b); err != nil {
				return err
			}
		}
	}
}

// gather returns a batch of m and the messages that have arrived after it.
func (l *Log) gather(ctx context.Context, m jetstream.Msg, arrived <-chan jetstream.Msg) (Batch, error) {
	var b Batch
	size := 0
	for {
		if err := ctx.Err(); err != nil { // Consume has dropped messages since, so m may follow a gap
			return b, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return b, fmt.Errorf("read log: %w", err)
		}
		e, err := l.stored(ctx, m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, meta.Timestamp)
		if err != nil {
			return b, err
		}
		b.Events, b.Behind = append(b.Events, e), meta.NumPending
		if size += len(e.Data); len(b.Events) == MaxBatch || size >= maxBatchBytes {
			return b, nil
		}
		select {
		case m = <-arrived:
		default:
			return b, nil
		}
	}
}

// stored returns the event of a stored message, with its body fetched from BLOBS if it is there. If that body is
// lost, the event is malformed and its Data is the reference.
func (l *Log) stored(ctx context.Context, subject string, h nats.Header, data []byte, seq uint64,
	at time.Time) (events.Event, error) {
	var lost error
	if h.Get(events.HeaderBlob) != "" && events.WithoutMark(data) != nil {
		body, err := l.readBody(ctx, data)
		if err != nil && !blob.IsLost(err) {
			return events.Event{}, fmt.Errorf("read #%d %s: %w", seq, subject, err)
		}
		if lost = err; lost == nil {
			data = body
		}
	}
	e := events.FromMessage(subject, h, data, seq, at)
	if lost != nil {
		e = e.WithoutBody(data, fmt.Errorf("read #%d %s: %w", seq, subject, lost))
	}
	return e, nil
}

// readBody returns the body that a reference names.
func (l *Log) readBody(ctx context.Context, reference []byte) ([]byte, error) {
	var b events.Blob
	if err := json.Unmarshal(reference, &b); err != nil {
		return nil, fmt.Errorf("read the name of its blob: %w: %w", blob.ErrDamaged, err)
	}
	return l.Blobs.Read(ctx, b)
}

// removeConsumer deletes a consumer. Stop does not, and a stream takes a limited number of consumers.
func (l *Log) removeConsumer(stream string, c jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = l.js.DeleteConsumer(ctx, stream, c.CachedInfo().Name) // the inactive threshold removes it otherwise
}
