package log

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/sleep"
)

const (
	workRetry       = time.Second     // pause before work that failed is tried again
	workRequestTime = 5 * time.Second // how long one request for work is valid
	// after a crash the event is delivered again after this time; extended while the work runs
	workLease = 3 * time.Second
)

// Work calls fn with every event that matches filter, one at a time and in order. The server stores its progress under
// name, so it continues after a restart. An event is done when fn returns nil. After a crash or an error it is
// retried, so fn must find out what an earlier attempt did. failed receives each error.
func (l *Log) Work(ctx context.Context, name, filter string, fn func(context.Context, events.Event) error,
	failed func(events.Event, error)) error {
	return l.WorkAll(ctx, name, []string{filter}, fn, failed)
}

// WorkAll is Work for events that match any of several filters. No two filters may match the same event.
func (l *Log) WorkAll(ctx context.Context, name string, filters []string, fn func(context.Context, events.Event) error,
	failed func(events.Event, error)) error {
	return l.takeWork(ctx, name, filters, 1, func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		e, err := l.stored(ctx, m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, meta.Timestamp)
		if err == nil {
			err = attempt(m, func() error { return work(ctx, e, fn) })
		}
		return finish(ctx, m, e, err, failed)
	})
}

// untilOpen repeats a request of a reader or worker that starts. A server that opens its streams or elects a leader
// never answers earlier requests.
func untilOpen(ctx context.Context, open func(context.Context) error) error {
	for {
		trying, end := context.WithTimeout(ctx, requestTimeout/3)
		err := open(trying)
		end()
		if !IsUnavailable(err) || ctx.Err() != nil {
			return err
		}
		if sleep.For(ctx, retryPause) != nil {
			return err
		}
	}
}

// takeWork calls take with each event that the server delivers, at most limit before they are finished.
func (l *Log) takeWork(ctx context.Context, name string, filters []string, most int,
	take func(jetstream.Msg, *jetstream.MsgMetadata) error) error {
	var consumer jetstream.Consumer
	err := untilOpen(ctx, func(ctx context.Context) (err error) {
		consumer, err = l.js.CreateOrUpdateConsumer(ctx, EventsStream, jetstream.ConsumerConfig{
			Durable: name, FilterSubjects: filters, AckPolicy: jetstream.AckExplicitPolicy,
			MaxAckPending: most, AckWait: workLease,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("open worker %s: %w", name, err)
	}
	// On a busy machine the server sometimes delivers the next event only with the next request (measured, 2.15.2), so
	// requests are short. A late heartbeat is no reason to stop.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(workRequestTime),
		jetstream.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return fmt.Errorf("run worker %s: %w", name, err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("run worker %s: %w", name, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("run worker %s: %w", name, err)
		}
		if err := take(m, meta); err != nil {
			return fmt.Errorf("run worker %s: %w", name, err)
		}
	}
}

// workMessage is an event that the server handed out and that is not finished.
type workMessage interface {
	Ack() error
	NakWithDelay(time.Duration) error
	InProgress() error
}

// finish tells the server whether an event is done.
func finish(ctx context.Context, m workMessage, e events.Event, err error, failed func(events.Event, error)) error {
	if err != nil {
		if ctx.Err() == nil { // a stop is no failure; the next process goes on
			failed(e, err)
		}
		err = m.NakWithDelay(workRetry)
	} else {
		err = m.Ack()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// LastAcked returns the sequence up to which a worker has handled all its events, 0 if it has handled none.
func (l *Log) LastAcked(ctx context.Context, name string) (uint64, error) {
	consumer, err := l.js.Consumer(ctx, EventsStream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look up worker %s: %w", name, err)
	}
	return consumer.CachedInfo().AckFloor.Stream, nil
}

// work calls fn, but does nothing with an event that could not be decoded.
func work(ctx context.Context, e events.Event, fn func(context.Context, events.Event) error) error {
	if e.Malformed != nil {
		return nil
	}
	return fn(ctx, e)
}

// attempt calls fn, and meanwhile tells the server not to deliver the event again.
func attempt(m workMessage, fn func() error) error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(workLease / 3)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = m.InProgress() // if it is lost, the event is attempted again
			}
		}
	}()
	return fn()
}
