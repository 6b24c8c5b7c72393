package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
)

const (
	// maxTakenEvents is how many events ConsumeByChat takes before they are finished. A waiting event has no body and no
	// goroutine. Measured with 16,000 waiting events of one chat: 264 bytes of memory for each, in client and embedded
	// server together, and 5 % of one core for their leases.
	maxTakenEvents = 1 << 14
	maxChatsAtOnce = 256              // how many chats are worked on at the same time
	waitingLease   = 15 * time.Second // after a crash the server hands out a waiting event again after this time
	replicaPause   = 100 * time.Millisecond
)

// ConsumeByChat is Consume with the events of different chats at the same time. A chat whose events take long delays no
// other until 16,384 events wait. The events of one chat are handled one at a time and in order, with two exceptions.
// An event that failed is tried again after others. After a restart, events that were handed out before may come after
// newer ones.
func (l *Log) ConsumeByChat(ctx context.Context, name, filter string, fn func(context.Context, events.Event) error,
	failed func(events.Event, error)) error {
	var stream jetstream.Stream
	err := untilOpen(ctx, func(ctx context.Context) (err error) {
		stream, err = l.js.Stream(ctx, EventsStream)
		return err
	})
	if err != nil {
		return fmt.Errorf("open consumer %s: %w", name, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queues := chatQueues{}
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel(nil)
	working.Go(func() { queues.extendLeases(ctx) })
	places := make(chan struct{}, maxChatsAtOnce)
	one := func(d delivery, read func(context.Context) (events.Event, error)) error {
		e := events.Event{Seq: d.seq}
		err := attempt(d, func() error {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-ctx.Done():
				return ctx.Err()
			}
			var err error
			if e, err = read(ctx); err != nil {
				return err
			}
			return handle(ctx, e, fn)
		})
		return finish(ctx, d, e, err, failed)
	}
	return l.consume(ctx, name, []string{filter}, maxTakenEvents,
		func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			subject, _ := events.ParseSubject(m.Subject()) // one that is not valid is finished without work
			d := delivery{nc: l.nc, seq: meta.Sequence.Stream, reply: m.Reply()}
			if !queues.enqueue(subject.ID, d) {
				return nil
			}
			read := func(ctx context.Context) (events.Event, error) {
				return l.stored(ctx, m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, meta.Timestamp)
			}
			working.Go(func() {
				for more := true; more; {
					if err := one(d, read); err != nil {
						cancel(err)
					}
					if ctx.Err() != nil {
						return
					}
					d, more = queues.next(subject.ID)
					read = func(ctx context.Context) (events.Event, error) { return l.at(ctx, stream, d.seq) }
				}
			})
			return nil
		}, failed)
}

// at returns the event with a sequence. Events are never removed, so a replica that does not find one lags behind.
func (l *Log) at(ctx context.Context, stream jetstream.Stream, seq uint64) (events.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := stream.GetMsg(ctx, seq)
	for errors.Is(err, jetstream.ErrMsgNotFound) && ctx.Err() == nil {
		time.Sleep(replicaPause)
		m, err = stream.GetMsg(ctx, seq)
	}
	if err != nil {
		return events.Event{}, fmt.Errorf("read #%d: %w", seq, err)
	}
	return l.stored(ctx, m.Subject, m.Header, m.Data, m.Sequence, m.Time)
}

// delivery is an event that the server handed out, without its body.
type delivery struct {
	nc    *nats.Conn
	seq   uint64
	reply string // receives the acknowledgement
}

func (d delivery) Ack() error        { return d.nc.Publish(d.reply, []byte("+ACK")) }
func (d delivery) InProgress() error { return d.nc.Publish(d.reply, []byte("+WPI")) }

func (d delivery) NakWithDelay(after time.Duration) error {
	return d.nc.Publish(d.reply, fmt.Appendf(nil, `-NAK {"delay":%d}`, after))
}

// chatQueues are the events of each chat that wait for an earlier one of the same chat. It is safe for concurrent use.
type chatQueues struct {
	mu    sync.Mutex
	chats map[string]*chatQueue // only those with an event in work
}

type chatQueue struct {
	working uint64     // sequence of the event in work
	waiting []delivery // ordered by sequence
}

// enqueue reports whether the caller must start the event now, because its chat has none in work. Otherwise the event
// waits. An event that is delivered twice is queued once.
func (q *chatQueues) enqueue(chat string, d delivery) (start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.chats[chat]
	if c == nil {
		if q.chats == nil {
			q.chats = map[string]*chatQueue{}
		}
		q.chats[chat] = &chatQueue{working: d.seq}
		return true
	}
	if c.working == d.seq {
		return false
	}
	_ = d.NakWithDelay(waitingLease) // if it is lost, the server hands the event out again
	i, waits := slices.BinarySearchFunc(c.waiting, d.seq, func(w delivery, seq uint64) int {
		return cmp.Compare(w.seq, seq)
	})
	if waits {
		c.waiting[i] = d
	} else {
		c.waiting = slices.Insert(c.waiting, i, d)
	}
	return false
}

// next returns the event of a chat to start after the one in work; false if none waits.
func (q *chatQueues) next(chat string) (delivery, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.chats[chat]
	if len(c.waiting) == 0 {
		delete(q.chats, chat)
		return delivery{}, false
	}
	d := c.waiting[0]
	c.working, c.waiting = d.seq, c.waiting[1:]
	return d, true
}

// extendLeases keeps the server from handing out waiting events again. When ctx ends, it returns them to the server.
func (q *chatQueues) extendLeases(ctx context.Context) {
	tick := time.NewTicker(waitingLease / 3)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			q.lease(waitingLease)
		case <-ctx.Done():
		}
	}
	q.lease(retryDelay)
}

// lease tells the server when it may hand out waiting events again.
func (q *chatQueues) lease(after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.chats {
		for _, d := range c.waiting {
			_ = d.NakWithDelay(after)
		}
	}
}
