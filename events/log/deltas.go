package log

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
)

const (
	headerStream = "exec-stream" // "stdout" or "stderr"
	headerOffset = "exec-offset" // bytes of that stream before this chunk

	deltasInFlight = 4096 // fragments published and not yet acknowledged
)

// Delta is a streaming fragment: an OpenCode part growing, or a chunk of an execution's output.
type Delta struct {
	Subject string
	Type    string // "opencode.message.part.delta", "opencode.message.part.updated", or "exec.output"
	Stream  string // exec.output: "stdout" or "stderr"
	Offset  int64  // exec.output: bytes of that stream before this one
	Data    []byte // OpenCode's JSON, or raw bytes

	Stored time.Time // when it was stored; zero unless FoldDeltas read it
}

// ExecOutput is the type of an execution's output chunk.
const ExecOutput = "exec.output"

// PublishDelta publishes a fragment to DELTAS without waiting for its acknowledgement, because the closing event
// replaces a fragment that is lost in a crash. It blocks while too many fragments are in flight.
func (l *Log) PublishDelta(d Delta) error {
	h := nats.Header{}
	h.Set(events.HeaderType, d.Type)
	clean := l.Redactor().JSON
	if d.Type == ExecOutput {
		clean = l.Redactor().Bytes
		h.Set(headerStream, d.Stream)
		h.Set(headerOffset, strconv.FormatInt(d.Offset, 10))
	}
	m := &nats.Msg{Subject: d.Subject, Header: h, Data: clean(d.Data)}
	if _, err := l.js.PublishMsgAsync(m, jetstream.WithStallWait(requestTimeout)); err != nil {
		return fmt.Errorf("publish delta %s: %w", d.Subject, err)
	}
	return nil
}

// FollowDeltas calls fn with fragments as they are published, from now on, until ctx ends. It is for displays: a
// follower that cannot keep up misses fragments.
func (l *Log) FollowDeltas(ctx context.Context, filters []string, fn func(Delta)) error {
	arrived := make(chan *nats.Msg, deltasInFlight)
	for _, f := range filters {
		sub, err := l.nc.ChanSubscribe(f, arrived)
		if err != nil {
			return fmt.Errorf("follow %s: %w", f, err)
		}
		defer sub.Unsubscribe()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-arrived:
			fn(delta(m.Subject, m))
		}
	}
}

// FoldDeltas calls fn with every fragment stored after the given sequence whose subject matches filter, in order. It
// returns the sequence of the last one, or after if there is none. A fragment is stored a moment after followers
// receive it. Fragments that were lost or are older than DELTAS keeps are missing.
func (l *Log) FoldDeltas(ctx context.Context, filter string, after uint64, fn func(Delta) error) (uint64, error) {
	return l.direct.Read(ctx, DeltasStream, filter, after, func(m *nats.Msg, _ uint64) error {
		d := delta(m.Header.Get(jetstream.SubjectHeader), m)
		d.Stored, _ = time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
		return fn(d)
	})
}

func delta(subject string, m *nats.Msg) Delta {
	offset, _ := strconv.ParseInt(m.Header.Get(headerOffset), 10, 64)
	return Delta{Subject: subject, Type: m.Header.Get(events.HeaderType), Stream: m.Header.Get(headerStream),
		Offset: offset, Data: events.WithoutMark(m.Data)}
}

// ReadDeltas calls fn with the fragments that were stored since a time and match one of filters, in order, each once,
// and continues with new ones until ctx ends. Fragments older than DELTAS keeps are missing.
func (l *Log) ReadDeltas(ctx context.Context, since time.Time, filters []string, fn func(Delta)) error {
	consumer, err := l.js.OrderedConsumer(ctx, DeltasStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: filters, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("read deltas: %w", err)
	}
	defer l.removeConsumer(DeltasStream, consumer)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		if ctx.Err() == nil {
			fn(delta(m.Subject(), &nats.Msg{Header: m.Headers(), Data: m.Data()}))
		}
	}, jetstream.PullMaxMessages(4*MaxBatch), readHeartbeat)
	if err != nil {
		return fmt.Errorf("read deltas: %w", err)
	}
	defer consuming.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-consuming.Closed():
		return fmt.Errorf("read deltas: the consumer was closed")
	}
}
