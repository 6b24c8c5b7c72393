package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"pocketcoder/events"
)

// Expect is optimistic concurrency: the append is refused unless Last is the sequence of the newest event that matches
// Filter, 0 for none. Filter covers the events that the decision depends on.
type Expect struct {
	Filter string
	Last   uint64
}

// Write is an event of an atomic batch with its expectation. An empty Filter expects nothing.
type Write struct {
	Event  events.Event
	Expect Expect
}

// Codes of the JetStream API.
const (
	codeWrongLastSequence     = 10071
	codeInProcess             = 10164 // with several replicas: an append with the same expectation is in process
	codeBatchDuplicate        = 10201 // an atomic batch holds a message that is stored already
	codeBeingStored           = 10158 // the server stores an earlier copy of the message
	codeInsufficientResources = 10023 // the server has reached its limit of stored bytes
	codeInsufficientStorage   = 10047 // what an account or a stream reserves does not fit into that limit
	codeNotOpen               = 10120 // the server reopens its streams: it says that the account may have none
	codeBatchIncomplete       = 10176 // messages of an atomic batch are missing, as with a full disk
)

// MaxBatch is the most events one atomic batch may hold; the server's limit is 1,000.
const MaxBatch = 500

// maxBatchBytes keeps a batch well under the server's ingest limit of 128 MiB.
const maxBatchBytes = 8 << 20

// Append stores one event and returns its sequence. An event whose id is already stored (within two minutes) is not
// stored again; its first sequence is returned.
func (l *Log) Append(ctx context.Context, e events.Event, expect ...Expect) (uint64, error) {
	m, err := l.message(ctx, e)
	if err != nil {
		return 0, err
	}
	var opts []jetstream.PublishOpt
	for _, x := range expect {
		opts = append(opts, jetstream.WithExpectLastSequenceForSubject(x.Last, x.Filter))
	}
	w := Write{Event: e}
	if len(expect) > 0 {
		w.Expect = expect[0]
	}
	seq, err := l.retryAppend(ctx, []Write{w}, func(ctx context.Context) (uint64, error) {
		return l.publish(ctx, m, opts...)
	})
	if err != nil {
		return 0, appendError(e, err)
	}
	return seq, nil
}

func (l *Log) publish(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	ack, err := l.js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// AppendAll stores the events in order: as atomic batches when there are several, because then the disk is synced once
// for all of them. It returns the last sequence. Already stored events are not stored again.
func (l *Log) AppendAll(ctx context.Context, all []events.Event) (uint64, error) {
	var last uint64
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && n < MaxBatch && (n == 0 || size+len(all[n].Data) <= maxBatchBytes) {
			size += len(all[n].Data)
			n++
		}
		seq, err := l.appendBatch(ctx, all[:n])
		if err != nil {
			return last, err
		}
		last, all = seq, all[n:]
	}
	return last, nil
}

func (l *Log) appendBatch(ctx context.Context, batch []events.Event) (uint64, error) {
	if len(batch) > 1 {
		writes := make([]Write, len(batch))
		for i, e := range batch {
			writes[i].Event = e
		}
		if seq, err := l.appendAtomic(ctx, writes); !isCode(err, codeBatchDuplicate) {
			return seq, err
		}
	}
	var last uint64
	for _, e := range batch { // one by one: a single event, or the server refused the batch because of a stored one
		seq, err := l.Append(ctx, e)
		if err != nil {
			return last, err
		}
		last = seq
	}
	return last, nil
}

// Commit stores what a command decided: 1 to MaxBatch events in order if every expectation holds. Otherwise it stores
// none and returns ErrConflict. Each expectation is compared with the log before the batch. The server refuses an
// expectation on a literal subject that comes after the first event of that subject. Commit returns an Unavailable
// while accepting does.
func (l *Log) Commit(ctx context.Context, writes []Write) (uint64, error) {
	if err := l.accepting(ctx); err != nil {
		return 0, err
	}
	if len(writes) > 1 {
		return l.appendAtomic(ctx, writes)
	}
	w := writes[0]
	if w.Expect.Filter == "" {
		return l.Append(ctx, w.Event)
	}
	return l.Append(ctx, w.Event, w.Expect)
}

// appendAtomic stores the events as one atomic batch.
func (l *Log) appendAtomic(ctx context.Context, writes []Write) (uint64, error) {
	batch := make([]*nats.Msg, len(writes)) // complete first: the server waits at most 10 s for the next message
	for i, w := range writes {
		m, err := l.message(ctx, w.Event)
		if err != nil {
			return 0, err
		}
		if w.Expect.Filter != "" {
			m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(w.Expect.Last, 10))
			m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, w.Expect.Filter)
		}
		batch[i] = m
	}
	seq, err := l.retryAppend(ctx, writes, func(ctx context.Context) (uint64, error) { return l.publishBatch(ctx, batch) })
	if err != nil {
		return 0, appendError(writes[len(writes)-1].Event, err)
	}
	return seq, nil
}

// publishBatch speaks the server's atomic batch protocol (ADR-50): every message carries the batch id and its number,
// and the last one commits and receives the acknowledgement. nats.go has no client for it.
func (l *Log) publishBatch(ctx context.Context, batch []*nats.Msg) (uint64, error) {
	id, last := nuid.Next(), len(batch)-1
	for i, m := range batch {
		m.Header.Set("Nats-Batch-Id", id)
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i < last {
			if err := l.nc.PublishMsg(m); err != nil {
				return 0, err
			}
		}
	}
	batch[last].Header.Set("Nats-Batch-Commit", "1")
	answer, err := l.nc.RequestMsgWithContext(ctx, batch[last])
	if err != nil {
		return 0, err
	}
	return batchAck(answer.Data, len(batch))
}

// batchAck reads the answer to the commit of a batch of n messages.
func batchAck(answer []byte, n int) (uint64, error) {
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"seq"`
		Count int                 `json:"count"`
	}
	if err := json.Unmarshal(answer, &ack); err != nil {
		return 0, err
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	if ack.Count != n {
		return 0, fmt.Errorf("the server stored %d of a batch of %d", ack.Count, n)
	}
	return ack.Seq, nil
}

// message returns e as it is stored: redacted, and with a large body in BLOBS.
func (l *Log) message(ctx context.Context, e events.Event) (*nats.Msg, error) {
	body := l.Redactor().JSON(e.Data)
	if len(body) <= MaxInline {
		return events.Message(e, body), nil
	}
	b, err := l.Blobs.PutByHash(ctx, body)
	if err != nil {
		l.observe(err)
		return nil, appendError(e, err)
	}
	reference, err := json.Marshal(b)
	if err != nil {
		return nil, appendError(e, err)
	}
	m := events.Message(e, reference)
	m.Header.Set(events.HeaderBlob, "1")
	return m, nil
}

func appendError(e events.Event, err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case codeWrongLastSequence, codeInProcess:
			err = ErrConflict
		case codeInsufficientResources, codeInsufficientStorage:
			err = fmt.Errorf("%w (%w)", errStorageLimit, err)
		}
	}
	return fmt.Errorf("append %s: %w", e.RawSubject, err)
}
