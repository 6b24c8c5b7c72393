package log

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/sleep"
)

// Unavailable is the error of a command that cannot be stored at present. It is a sentence for the person who sent it.
type Unavailable string

func (u Unavailable) Error() string { return string(u) }

// errStorageLimit is the error of an append beyond a limit of the server. The log stores events again as soon as the
// server does.
const errStorageLimit = Unavailable("The NATS server has reached its storage limit. An administrator must raise max_file_store of the server, or free space and restart it.")

// The errors of an append that the server did not confirm in time.
const (
	errNotStored = Unavailable("The log does not answer, so nothing was stored. Try again in a few seconds.")
	errMayStore  = Unavailable("The log did not confirm this in time. It may still be stored: look whether it is there before you try again, or try again with the same id.")
)

// appendTimeout limits all tries of an append, attemptTimeout one try: an append may wait behind slow syncs, or be lost
// while a cluster elects a leader.
const (
	appendTimeout  = 9 * time.Second
	attemptTimeout = 3 * time.Second
	retryPause     = 100 * time.Millisecond
)

// retryAppend repeats an append until the server has stored or refused it. The server recognizes the ids of stored
// events, so it stores them once. But it compares expectations first, and refuses a batch with a stored event.
func (l *Log) retryAppend(ctx context.Context, writes []Write,
	try func(context.Context) (uint64, error)) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	refusal := errNotStored
	for tries := 0; ; tries++ {
		if err := checkDeadline(ctx); err != nil {
			return 0, err
		}
		trying, end := context.WithTimeout(ctx, attemptTimeout)
		seq, err := try(trying)
		// whatever the error of an earlier try: a server that loses its leadership may have passed the event on
		if isCode(err, codeInProcess) || tries > 0 && isCode(err, codeWrongLastSequence, codeBatchDuplicate) {
			seq, err = l.sequenceOf(trying, writes, err)
		}
		end()
		if err == nil {
			markStored(ctx)
		}
		if !isTransient(err) {
			l.observe(err)
			return seq, err
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || isCode(err, codeBeingStored) {
			refusal = errMayStore
			markStored(ctx)
		}
		if sleep.For(ctx, retryPause) != nil {
			l.observe(err)
			return 0, fmt.Errorf("%w (%w)", refusal, err)
		}
	}
}

// isTransient reports whether the server may store an append when it is repeated.
func isTransient(err error) bool {
	return IsUnavailable(err) && !isCode(err, codeInsufficientResources, codeInsufficientStorage)
}

func isCode(err error, codes ...jetstream.ErrorCode) bool {
	api := (*jetstream.APIError)(nil)
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

// sequenceOf returns the sequence of the last of the writes, if the server stored them in an earlier try. Otherwise it
// returns the refusal if a newer event is the reason for it. It returns codeBeingStored if that is not to be seen: the
// replica that was read is behind, or another append with the same expectation is in process. (A leader acknowledges an
// append before it has ended it, so one writer alone meets this too: measured with 2.15.2, on a busy machine.)
func (l *Log) sequenceOf(ctx context.Context, writes []Write, refusal error) (seq uint64, err error) {
	last, since, isOutdated := writes[len(writes)-1].Event, uint64(0), false
	for _, w := range writes {
		if w.Expect.Filter == "" {
			continue
		}
		since = max(since, w.Expect.Last)
		_, err := l.Fold(ctx, w.Expect.Filter, w.Expect.Last, func(e events.Event) error {
			isOwn := slices.ContainsFunc(writes, func(w Write) bool { return w.Event.ID == e.ID })
			isOutdated = isOutdated || !isOwn
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	_, err = l.Fold(ctx, last.RawSubject, since, func(e events.Event) error {
		if e.ID == last.ID {
			seq = e.Seq
		}
		return nil
	})
	switch {
	case err != nil || seq != 0:
		return seq, err
	case isOutdated && !isCode(refusal, codeBatchDuplicate):
		return 0, refusal
	}
	return 0, &jetstream.APIError{ErrorCode: codeBeingStored}
}

// noSequence is a last sequence that no stream has. (An unknown last message id is no alternative: with it, a cluster
// of 2.15.2 loses its leader until a restart (measured).)
const noSequence = 1 << 62

// Probe returns what the server that leads EVENTS knows of the stream's other servers, nil if there are none. It fails
// if that server does not answer an append. It stores nothing, because the server refuses the event.
func (l *Log) Probe(ctx context.Context) (*jetstream.ClusterInfo, error) {
	_, err := l.publish(ctx, nats.NewMsg(events.AuditSubject("probe")), jetstream.WithExpectLastSequence(noSequence))
	if !isCode(err, codeWrongLastSequence) {
		return nil, fmt.Errorf("probe %s: %w", EventsStream, err)
	}
	s, err := l.js.Stream(ctx, EventsStream)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", EventsStream, err)
	}
	last := s.CachedInfo().State.LastSeq
	if before := l.probed.Swap(last); before != 0 && last > before {
		l.observe(nil) // this process or another one has appended
	}
	return s.CachedInfo().Cluster, nil
}

// Accepting returns an Unavailable while commands are refused. Append and AppendAll are not refused: they store facts
// that have happened already, and the last free space is for them.
func (l *Log) Accepting(ctx context.Context) error {
	if last, _ := ctx.Value(lastSpaceKey{}).(bool); last || l.refuse == nil {
		return nil
	}
	return l.refuse()
}

type lastSpaceKey struct{}

// UseLastSpace returns a context with which Commit is never refused, for a command that stops something.
func UseLastSpace(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastSpaceKey{}, true)
}

// failure is an uninterrupted series of appends that the server did not store.
type failure struct {
	since time.Time // of the first error
	err   error     // the last one
}

// Failing returns the error of the last append and since when appends fail; nil if the last one was stored.
func (l *Log) Failing() (since time.Time, err error) {
	if f := l.failed.Load(); f != nil {
		return f.since, f.err
	}
	return time.Time{}, nil
}

// observe notes the result of an append.
func (l *Log) observe(err error) {
	if !IsUnavailable(err) {
		if err == nil && l.failed.Load() != nil {
			l.failed.Store(nil)
		}
		return
	}
	f := &failure{since: time.Now(), err: err}
	if earlier := l.failed.Load(); earlier != nil {
		f.since = earlier.since
	}
	l.failed.Store(f)
}

// IsUnavailable reports whether an error means that the server does not answer or does not store at present. A refusal
// of one event is no such error.
func IsUnavailable(err error) bool {
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) {
		return api.Code >= http.StatusInternalServerError || api.ErrorCode == codeBatchIncomplete ||
			api.ErrorCode == codeBeingStored ||
			api.ErrorCode == codeNotOpen
	}
	// Package jetstream creates the consumer of a watch through package nats, which has its own error type.
	if api := (*nats.APIError)(nil); errors.As(err, &api) {
		return api.Code >= http.StatusInternalServerError
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse)
}
