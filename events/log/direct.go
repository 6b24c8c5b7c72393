package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
)

// Fold calls fn with every event that is stored now after the given sequence and matches filter, in order. It returns the
// sequence of the last one, or after if there is none. It needs no consumer, so each decision can use it.
func (l *Log) Fold(ctx context.Context, filter string, after uint64, fn func(events.Event) error) (uint64, error) {
	return l.direct(ctx, EventsStream, filter, after, func(m *nats.Msg, seq uint64) error {
		e, err := l.storedDirect(ctx, m, seq)
		if err != nil {
			return err
		}
		return fn(e)
	})
}

// Get returns the event at a sequence, and whether there is one. It reads this event alone, and a Fold reads as many as fit into an answer.
func (l *Log) Get(ctx context.Context, seq uint64) (e events.Event, ok bool, err error) {
	m, err := l.get(ctx, EventsStream, map[string]any{"seq": seq})
	if err == nil && m != nil {
		e, err = l.storedDirect(ctx, m, seq)
	}
	if err != nil {
		return e, false, fmt.Errorf("read event #%d: %w", seq, err)
	}
	return e, m != nil, nil
}

// firstBatch is how many messages are asked for at first. Many readers stop after a few, and the server does not know: it looks for
// the rest of the batch, in a long log for a second and more (measured).
const firstBatch = 16

// maxDirectBytes is the approximate size of answers that wait for a slow reader.
const maxDirectBytes = 1 << 20

// direct reads messages with the server's batched direct get (ADR-31): no consumer, one round trip for up to MaxBatch
// messages. nats.go has no client for it.
func (l *Log) direct(ctx context.Context, stream, filter string, after uint64, fn func(*nats.Msg, uint64) error) (uint64, error) {
	fail := func(err error) (uint64, error) {
		return after, fmt.Errorf("read %s of %s after %d: %w", filter, stream, after, err)
	}
	inbox := l.nc.NewInbox()
	sub, err := l.nc.SubscribeSync(inbox)
	if err != nil {
		return fail(err)
	}
	defer sub.Unsubscribe()
	batch := firstBatch
	for more, wait := true, answerTime; more; batch = min(4*batch, MaxBatch) {
		request, err := json.Marshal(map[string]any{
			"seq": after + 1, "next_by_subj": filter, "batch": batch, "max_bytes": maxDirectBytes,
		})
		if err != nil {
			return fail(err)
		}
		if err := l.nc.PublishRequest(l.prefix+".DIRECT.GET."+stream, inbox, request); err != nil {
			return fail(err)
		}
		before := after
		after, more, err = directAnswers(ctx, sub, after, wait, fn)
		switch silent := errors.Is(err, errSilent); {
		case silent && isPatient(ctx): // the answer was lost, or the server still looks for the next match
			more, wait = true, 2*wait
		case err != nil:
			return fail(err)
		}
		if after > before {
			wait = answerTime
		}
	}
	return after, nil
}

// answerTime is how long a reader waits for an answer of the server.
var answerTime = 9 * time.Second

// errSilent means that no answer came within the time.
var errSilent = fmt.Errorf("the log does not answer: %w", context.DeadlineExceeded)

type patientKey struct{}

// Patient returns a context whose readers wait for the server without a limit. A server that is busy can take long to find the few
// events of a filter among millions.
func Patient(ctx context.Context) context.Context { return context.WithValue(ctx, patientKey{}, true) }

func isPatient(ctx context.Context) bool {
	patient, _ := ctx.Value(patientKey{}).(bool)
	return patient
}

// directAnswers receives the answers of one request: messages with their sequence in a header, then an empty message with a
// status: 204 at the end of the batch, 404 if there are no messages. It skips messages that the answers to an earlier request have
// brought.
func directAnswers(ctx context.Context, sub *nats.Subscription, after uint64, wait time.Duration, fn func(*nats.Msg, uint64) error) (uint64, bool, error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = errSilent
		}
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
		if seq <= after {
			continue
		}
		if err := fn(m, seq); err != nil {
			return after, false, err
		}
		after = seq
	}
}
