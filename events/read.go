package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Batch is what had arrived when the reader looked: in order, at most MaxBatch events, at least one except for the
// first batch of a log that has nothing to give. Behind is how many matching events were still to come; 0 says the
// reader has caught up.
type Batch struct {
	Events []Event
	Behind uint64
}

// Stop is what a reader's function returns to end Read without an error.
var Stop = errors.New("stop reading")

// Read calls fn with every event after the given sequence that matches one of filters (all events when there are none),
// and goes on with new ones as they come until ctx ends or fn returns an error. It waits for nothing: a batch is what
// has arrived.
func (l *Log) Read(ctx context.Context, after uint64, filters []string, fn func(Batch) error) error {
	err := l.read(ctx, after, filters, fn)
	if errors.Is(err, Stop) {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (l *Log) read(ctx context.Context, after uint64, filters []string, fn func(Batch) error) error {
	if len(filters) == 0 {
		filters = []string{AllEvents}
	}
	consumer, err := l.js.OrderedConsumer(ctx, eventsStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: filters, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("read log after %d: %w", after, err)
	}
	defer l.removeConsumer(consumer)
	arrived := make(chan jetstream.Msg, 2*MaxBatch)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		select {
		case arrived <- m:
		case <-ctx.Done():
		}
	}, jetstream.PullMaxMessages(4*MaxBatch))
	if err != nil {
		return fmt.Errorf("read log after %d: %w", after, err)
	}
	defer consuming.Stop()
	if consumer.CachedInfo().NumPending == 0 && consumer.CachedInfo().Delivered.Stream == 0 {
		if err := fn(Batch{}); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-consuming.Closed():
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

// gather makes a batch of m and what has arrived behind it.
func (l *Log) gather(ctx context.Context, m jetstream.Msg, arrived <-chan jetstream.Msg) (Batch, error) {
	var b Batch
	size := 0
	for {
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

// stored gives the event of a stored message, its body fetched from BLOBS when it lies there.
func (l *Log) stored(ctx context.Context, subject string, h nats.Header, data []byte, seq uint64, at time.Time) (Event, error) {
	if h.Get(headerBlob) != "" {
		body, err := l.fetchBody(ctx, data)
		if err != nil {
			return Event{}, fmt.Errorf("read #%d %s: %w", seq, subject, err)
		}
		data = body
	}
	return decode(subject, h, data, seq, at), nil
}

// removeConsumer deletes a consumer that is done with: Stop leaves it, and a stream takes only so many.
func (l *Log) removeConsumer(c jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = l.js.DeleteConsumer(ctx, eventsStream, c.CachedInfo().Name) // the inactive threshold removes it otherwise
}

// Fold calls fn with every event now stored after the given sequence that matches filter, in order, and returns the
// sequence of the last one (after itself when there is none): what a decision needs to know, without a consumer. It
// uses the server's batched direct get, one round trip for up to MaxBatch events.
func (l *Log) Fold(ctx context.Context, filter string, after uint64, fn func(Event) error) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	inbox := l.nc.NewRespInbox()
	sub, err := l.nc.SubscribeSync(inbox)
	if err != nil {
		return after, fmt.Errorf("fold %s: %w", filter, err)
	}
	defer sub.Unsubscribe()
	for more := true; more; {
		request := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, after+1, filter, MaxBatch, maxBatchBytes)
		if err := l.nc.PublishRequest("$JS.API.DIRECT.GET."+eventsStream, inbox, []byte(request)); err != nil {
			return after, fmt.Errorf("fold %s: %w", filter, err)
		}
		if after, more, err = l.foldBatch(ctx, sub, after, fn); err != nil {
			return after, fmt.Errorf("fold %s: %w", filter, err)
		}
	}
	return after, nil
}

// foldBatch takes the answers of one batched direct get: messages with their place in headers, then an empty message
// with a status (204 end of batch, 404 nothing there).
func (l *Log) foldBatch(ctx context.Context, sub *nats.Subscription, after uint64, fn func(Event) error) (uint64, bool, error) {
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return after, false, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "404":
			return after, false, nil
		case "204":
			return after, m.Header.Get("Nats-Num-Pending") != "0", nil
		default:
			return after, false, fmt.Errorf("direct get: %s %s", status, m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil {
			return after, false, fmt.Errorf("direct get: %w", err)
		}
		at, _ := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
		e, err := l.stored(ctx, m.Header.Get(jetstream.SubjectHeader), m.Header, m.Data, seq, at)
		if err != nil {
			return after, false, err
		}
		if err := fn(e); err != nil {
			return after, false, err
		}
		after = seq
	}
}
