package log

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/log/direct"
	"pocketcoder/events/log/sleep"
)

const (
	retryDelay   = time.Second     // pause before work that failed is tried again
	maxOpenTries = 3               // tries to open a consumer before another one takes its place
	fetchTime    = 5 * time.Second // how long one request for work is valid
	// after a crash the event is delivered again after this time; extended while the work runs
	ackWait = 3 * time.Second
)

// Consume calls fn with every event that matches filter, one at a time and in order. The server stores its progress
// under name, so it continues after a restart. An event is done when fn returns nil. After a crash or an error it is
// retried, so fn must find out what an earlier attempt did. failed receives each error.
func (l *Log) Consume(ctx context.Context, name, filter string, fn func(context.Context, events.Event) error,
	failed func(events.Event, error)) error {
	return l.ConsumeAll(ctx, name, []string{filter}, fn, failed)
}

// ConsumeAll is Consume for events that match any of several filters. No two filters may match the same event.
func (l *Log) ConsumeAll(ctx context.Context, name string, filters []string,
	fn func(context.Context, events.Event) error, failed func(events.Event, error)) error {
	take := func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		e, err := l.stored(ctx, m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, meta.Timestamp)
		if err == nil {
			err = attempt(m, func() error { return handle(ctx, e, fn) })
		}
		return finish(ctx, m, e, err, failed)
	}
	return l.consume(ctx, name, filters, 1, take, failed)
}

type beginKey struct{}

// ConsumeAfter returns a context whose consumers begin after the sequence that begin returns, if the server knows no
// progress of them: in a new log, after a restore, or after a loss. Without it they begin with the first event.
func ConsumeAfter(ctx context.Context, begin func(context.Context) (after uint64, err error)) context.Context {
	return context.WithValue(ctx, beginKey{}, begin)
}

// consumeAfter lets a consumer without progress skip the events for which nothing is left to do.
func (l *Log) consumeAfter(ctx context.Context, consumer jetstream.Consumer) error {
	begin, _ := ctx.Value(beginKey{}).(func(context.Context) (uint64, error))
	if begin == nil {
		return nil
	}
	s, err := l.js.Stream(ctx, EventsStream)
	if err != nil {
		return err
	}
	info := consumer.CachedInfo()
	if info.Delivered.Stream >= max(s.CachedInfo().State.FirstSeq, 1) { // a new consumer is before the first event
		return nil
	}
	after, err := begin(ctx)
	if err == nil && after > 0 {
		_, err = l.js.ResetConsumerToSequence(ctx, EventsStream, info.Name, after+1)
	}
	return err
}

// untilOpen repeats a request of a reader or consumer that starts. A server that opens its streams or elects a leader
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

// consume calls take with each event that the server delivers. At most most events are unfinished at a time.
func (l *Log) consume(ctx context.Context, name string, filters []string, most int,
	take func(jetstream.Msg, *jetstream.MsgMetadata) error, failed func(events.Event, error)) error {
	w, end := l.register(name)
	defer end()
	consumer, err := l.openConsumer(ctx, w, jetstream.ConsumerConfig{
		Durable: name, FilterSubjects: filters, AckPolicy: jetstream.AckExplicitPolicy,
		MaxAckPending: most, AckWait: ackWait,
	})
	if err != nil {
		return fmt.Errorf("open consumer %s: %w", name, err)
	}
	if used := consumer.CachedInfo().Name; used != name {
		failed(events.Event{}, fmt.Errorf("the NATS server cannot open the consumer %s; %s does its work", name, used))
	}
	// On a busy machine the server sometimes delivers the next event only with the next request (measured, 2.15.2), so
	// requests are short. A late heartbeat is no reason to stop.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(fetchTime),
		jetstream.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return fmt.Errorf("run consumer %s: %w", name, err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("run consumer %s: %w", name, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("run consumer %s: %w", name, err)
		}
		if err := take(m, meta); err != nil {
			return fmt.Errorf("run consumer %s: %w", name, err)
		}
	}
}

// openConsumer creates or finds a consumer. If the state file of a consumer is damaged, an external
// server can neither open nor delete it (measured, 2.15.2). openConsumer then uses a second name. That consumer begins
// as ConsumeAfter says.
func (l *Log) openConsumer(ctx context.Context, w *consumer, config jetstream.ConsumerConfig) (c jetstream.Consumer,
	err error) {
	names := [2]string{config.Durable, config.Durable + "-2"}
	tries := 0
	err = untilOpen(ctx, func(ctx context.Context) (err error) {
		if tries >= maxOpenTries {
			config.Durable = names[tries%2]
		}
		c, err = l.js.CreateOrUpdateConsumer(ctx, EventsStream, config)
		if l.setOpened(w, config.Durable, err); isCode(err, jetstream.JSErrCodeConsumerCreate) {
			tries++
			_ = sleep.For(ctx, retryDelay) // the server logs each attempt
		}
		if err != nil {
			return err
		}
		return l.consumeAfter(ctx, c)
	})
	return c, err
}

// delivered is an event that the server handed out and that is not finished.
type delivered interface {
	Ack() error
	NakWithDelay(time.Duration) error
	InProgress() error
}

// finish tells the server whether an event is done.
func finish(ctx context.Context, m delivered, e events.Event, err error, failed func(events.Event, error)) error {
	if err != nil {
		if ctx.Err() == nil { // a stop is no failure; the next process goes on
			failed(e, err)
		}
		err = m.NakWithDelay(retryDelay)
	} else {
		err = m.Ack()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// LastAcked returns the sequence up to which a consumer has handled all its events, 0 if it has handled none.
func (l *Log) LastAcked(ctx context.Context, name string) (uint64, error) {
	consumer, err := l.js.Consumer(ctx, EventsStream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look up consumer %s: %w", name, err)
	}
	return consumer.CachedInfo().AckFloor.Stream, nil
}

// handle calls fn, but does nothing with an event that could not be decoded.
func handle(ctx context.Context, e events.Event, fn func(context.Context, events.Event) error) error {
	if e.Malformed != nil {
		return nil
	}
	return fn(direct.Work(ctx), e)
}

// attempt calls fn, and meanwhile tells the server not to deliver the event again.
func attempt(m delivered, fn func() error) error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(ackWait / 3)
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

// consumer is a durable consumer that this process runs. Log.working guards it.
type consumer struct {
	name    string
	opened  bool   // it was created or found
	floor   uint64 // sequence up to which it has handled all its events
	idle    int    // number of checks since the floor moved, while events waited
	trouble string // why it does no work; empty if it works
}

const (
	checkPause   = 5 * time.Second // between two checks
	maxIdle      = 12              // checks without progress; a minute
	checkTimeout = 3 * time.Second // of one consumer
)

// register registers a consumer until end is called.
func (l *Log) register(name string) (w *consumer, end func()) {
	w = &consumer{name: name}
	l.working.Lock()
	defer l.working.Unlock()
	if l.consumers == nil {
		l.consumers = map[*consumer]bool{}
	}
	l.consumers[w] = true
	return w, func() {
		l.working.Lock()
		defer l.working.Unlock()
		delete(l.consumers, w)
	}
}

// setOpened notes the result of an attempt to open a consumer.
func (l *Log) setOpened(w *consumer, name string, err error) {
	l.working.Lock()
	defer l.working.Unlock()
	if w.name, w.opened, w.trouble = name, err == nil, ""; err != nil {
		w.trouble = fmt.Sprintf("the consumer %s cannot be opened: %v", w.name, err)
	}
}

// WatchConsumers checks until ctx ends whether the consumers of this process make progress. It counts its own ticks, so
// that a paused process does not report its consumers.
func (l *Log) WatchConsumers(ctx context.Context) error {
	tick := time.NewTicker(checkPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.checkConsumers(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Log) checkConsumers(ctx context.Context) {
	l.working.Lock()
	all := slices.Collect(maps.Keys(l.consumers))
	all = slices.DeleteFunc(all, func(w *consumer) bool { return !w.opened })
	l.working.Unlock()
	for _, w := range all {
		looking, end := context.WithTimeout(ctx, checkTimeout)
		c, err := l.js.Consumer(looking, EventsStream, w.name)
		end()
		l.working.Lock()
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			w.trouble = fmt.Sprintf("the consumer %s is missing; restart PocketCoder", w.name)
		} else if err == nil { // the health of the log reports other errors
			w.observe(c.CachedInfo())
		}
		l.working.Unlock()
	}
}

// observe compares the state of the consumer with the last one.
func (w *consumer) observe(c *jetstream.ConsumerInfo) {
	waiting := c.NumPending + uint64(c.NumAckPending)
	if w.idle++; waiting == 0 || c.AckFloor.Stream != w.floor {
		w.floor, w.idle = c.AckFloor.Stream, 0
	}
	w.trouble = ""
	if w.idle >= maxIdle {
		w.trouble = fmt.Sprintf("the consumer %s has not advanced for %d s; %d events wait after #%d", w.name,
			int((time.Duration(w.idle) * checkPause).Seconds()), waiting, w.floor)
	}
}

// StalledConsumers returns why consumers of this process do no work, in the order of their names. It returns nil if all
// work.
func (l *Log) StalledConsumers() (reasons []string) {
	l.working.Lock()
	defer l.working.Unlock()
	for w := range l.consumers {
		if w.trouble != "" {
			reasons = append(reasons, w.trouble)
		}
	}
	slices.Sort(reasons)
	return reasons
}
