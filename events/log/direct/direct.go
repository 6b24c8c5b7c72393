// Package direct reads messages of a stream with the server's direct get (ADR-31), without a consumer. nats.go has no
// client for it.
//
// Promises: a read calls its function with every message that is stored now and matches, in order, once. A reader that
// keeps its Position pays for new messages only, however long the stream is.
//
// It must not know what a message contains.
package direct

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events/log/sleep"
)

// firstBatch is how many messages are requested at first. Many readers stop after a few messages, but the server looks
// for the rest of the batch, in a long log for a second and more (measured).
const firstBatch = 16

// maxDirectBytes is the approximate size of answers that wait for a slow reader.
const maxDirectBytes = 1 << 20

// Reader reads streams. It is safe for concurrent use.
type Reader struct {
	Conn   *nats.Conn
	Prefix string // of the JetStream API
	Yields bool   // in a context of Work it pauses after each request that takes long
}

// maxBatch is the most messages of a batch.
const maxBatch = 500

// Read reads the messages after a sequence that match filter, in order. It needs no consumer and one round trip for up
// to maxBatch messages.
func (r Reader) Read(ctx context.Context, stream, filter string, after uint64,
	fn func(*nats.Msg, uint64) error) (uint64, error) {
	return r.readFrom(ctx, stream, filter, after, firstBatch, fn)
}

// slowAnswer is a time after which the next batch is smaller. While the server collects a batch it stores nothing in
// the stream, and it may have to load a block for each message.
const slowAnswer = 50 * time.Millisecond

// readFrom is Read with the size of the first batch. The others are no larger than what the server says is left,
// because it looks for what is missing in a batch up to the end of the stream.
func (r Reader) readFrom(ctx context.Context, stream, filter string, after uint64, batch int,
	fn func(*nats.Msg, uint64) error) (uint64, error) {
	q, err := r.newRequester(stream)
	if err != nil {
		return after, err
	}
	defer q.close()
	for left := batch; left > 0; {
		began := time.Now()
		request := map[string]any{"seq": after + 1, "next_by_subj": filter, "batch": min(batch, left),
			"max_bytes": maxDirectBytes}
		end, err := q.request(ctx, request, func(m *nats.Msg, seq uint64) error {
			if seq <= after { // an answer to an earlier request has brought it
				return nil
			}
			if err := fn(m, seq); err != nil {
				return err
			}
			after = seq
			return nil
		})
		if err != nil {
			return after, fmt.Errorf("read %s of %s after %d: %w", filter, stream, after, err)
		}
		if left = end.left; time.Since(began) > slowAnswer {
			batch = max(batch/4, 1)
		} else {
			batch = min(4*batch, maxBatch)
		}
	}
	return after, nil
}

// requester sends requests for several messages.
type requester struct {
	Reader
	stream  string
	inbox   string
	sub     *nats.Subscription
	answers chan *nats.Msg
}

// maxAnswers is the most messages that the server sends for a request: 1,024 and the end.
const maxAnswers = 1025

func (r Reader) newRequester(stream string) (*requester, error) {
	// those to a repeated request, too
	q := &requester{Reader: r, stream: stream, inbox: r.Conn.NewInbox(), answers: make(chan *nats.Msg, 2*maxAnswers)}
	var err error
	q.sub, err = r.Conn.ChanSubscribe(q.inbox, q.answers)
	return q, err
}

func (q *requester) close() { _ = q.sub.Unsubscribe() } // it fails only if the connection is closed

// endOfAnswer is the end of the answers to a request.
type endOfAnswer struct {
	none string // why there are no messages; empty if there are
	left int    // number of messages that match and were not sent
	upTo uint64 // to a request of the last messages: the last sequence of the stream when the server looked
}

// request sends a request and calls fn with each message of the answer. For a patient reader it repeats the request
// until an answer comes.
func (q *requester) request(ctx context.Context, request map[string]any,
	fn func(*nats.Msg, uint64) error) (end endOfAnswer, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return end, err
	}
	defer func(began time.Time) {
		if err == nil {
			err = q.yield(ctx, time.Since(began))
		}
	}(time.Now())
	for wait := answerTime; ; wait *= 2 {
		if err := q.Conn.PublishRequest(q.Prefix+".DIRECT.GET."+q.stream, q.inbox, body); err != nil {
			return end, err
		}
		end, err = q.receive(ctx, wait, fn)
		// the answer was lost, or the server still looks for the next match
		if !errors.Is(err, errSilent) || !isPatient(ctx) {
			return end, err
		}
	}
}

// requestTimeout bounds a request for one message.
const requestTimeout = 15 * time.Second

// answerTime is how long a reader waits for an answer of the server.
var answerTime = 9 * time.Second

// errSilent means that no answer came within the time.
var errSilent = fmt.Errorf("the log does not answer: %w", context.DeadlineExceeded)

type noTimeoutKey struct{}

// Patient returns a context whose readers wait for the server without a limit. A server that is busy can take long to
// find the few events of a filter among millions.
func Patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, noTimeoutKey{}, true)
}

func isPatient(ctx context.Context) bool {
	patient, _ := ctx.Value(noTimeoutKey{}).(bool)
	return patient
}

type workKey struct{}

// Work returns a context for work for which no person waits.
func Work(ctx context.Context) context.Context { return context.WithValue(ctx, workKey{}, true) }

// yieldAfter is how long a request may take without a pause after it.
const yieldAfter = 5 * time.Millisecond

// maxYield limits a pause. A person may wait for a state that the work reads.
const maxYield = time.Second

// yield pauses after a request that took a time. The server stores nothing in a stream while it answers.
func (r Reader) yield(ctx context.Context, took time.Duration) error {
	if isWork, _ := ctx.Value(workKey{}).(bool); !r.Yields || !isWork || took <= yieldAfter {
		return nil
	}
	return sleep.For(ctx, min(3*took, maxYield))
}

// receive receives the answers to one request: messages with their sequence in a header, then an empty message with a
// status: 204 at the end, 404 if there are no messages.
func (q *requester) receive(ctx context.Context, wait time.Duration,
	fn func(*nats.Msg, uint64) error) (end endOfAnswer, err error) {
	for {
		m, err := q.next(ctx, wait)
		if err != nil {
			return end, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "503":
			return end, nats.ErrNoResponders
		case "404":
			end.none = m.Header.Get("Description")
			return end, nil
		case "204":
			end.left, _ = strconv.Atoi(m.Header.Get("Nats-Num-Pending"))
			end.upTo, _ = strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64) // absent for other requests
			return end, nil
		default:
			return end, refusal{status, m.Header.Get("Description")}
		}
		seq, err := sequence(m)
		if err != nil {
			return end, err
		}
		if err := fn(m, seq); err != nil {
			return end, err
		}
	}
}

// next returns the next message of the answers.
func (q *requester) next(ctx context.Context, wait time.Duration) (*nats.Msg, error) {
	silence, look := time.NewTimer(wait), time.NewTicker(time.Second)
	defer silence.Stop()
	defer look.Stop()
	for {
		select {
		case m := <-q.answers:
			return m, nil
		case <-silence.C:
			return nil, errSilent
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-look.C:
			if q.Conn.IsClosed() { // the channel stays open
				return nil, nats.ErrConnectionClosed
			}
		}
	}
}

// refusal is an answer that refuses a direct get.
type refusal struct{ status, description string }

func (e refusal) Error() string { return "direct get: " + e.status + " " + e.description }

// sequence returns the sequence of a message in an answer.
func sequence(m *nats.Msg) (uint64, error) {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("direct get: %w", err)
	}
	return seq, nil
}

// Get requests one message. It returns nil if there is none.
func (r Reader) Get(ctx context.Context, stream string, request map[string]any) (*nats.Msg, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	m, err := r.answer(ctx, r.Prefix+".DIRECT.GET."+stream, body)
	if err == nil {
		err = r.yield(ctx, time.Since(began))
	}
	if err != nil {
		return nil, err
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		return m, nil
	case "404":
		return nil, nil
	default:
		return nil, refusal{status, m.Header.Get("Description")}
	}
}

// answer returns the answer to a request. For a patient reader it repeats the request until an answer comes.
func (r Reader) answer(ctx context.Context, subject string, request []byte) (*nats.Msg, error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, requestTimeout)
		m, err := r.Conn.RequestWithContext(waiting, subject, request)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || !isPatient(ctx) {
			return m, err
		}
	}
}
