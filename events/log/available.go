package log

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
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

// accepting returns an Unavailable while commands are refused. Append and AppendAll are not refused: they store facts
// that have happened already, and the last free space is for them.
func (l *Log) accepting(ctx context.Context) error {
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

// ErrLate means that nothing was stored, because the deadline of BeginBefore had passed.
var ErrLate = errors.New("the deadline of the command has passed, so nothing was stored")

// commandDeadline is the deadline of a command that may append more than once.
type commandDeadline struct {
	at     time.Time
	stored atomic.Bool // an append was stored, or may be
}

type deadlineKey struct{}

// BeginBefore returns a context with which appends return ErrLate after the deadline. Once one of them is stored, the
// further ones are stored too, whenever they come: the command is not left half done.
func BeginBefore(ctx context.Context, deadline time.Time) context.Context {
	return context.WithValue(ctx, deadlineKey{}, &commandDeadline{at: deadline})
}

// checkDeadline is called directly before an append is sent.
func checkDeadline(ctx context.Context) error {
	d, _ := ctx.Value(deadlineKey{}).(*commandDeadline)
	if d != nil && !d.stored.Load() && time.Now().After(d.at) {
		return ErrLate
	}
	return nil
}

// markStored is called when an append was stored, or may be.
func markStored(ctx context.Context) {
	if d, _ := ctx.Value(deadlineKey{}).(*commandDeadline); d != nil {
		d.stored.Store(true)
	}
}

const (
	quorumPause     = 500 * time.Millisecond // between two probes
	quorumProbeTime = 2 * time.Second        // bounds one probe

	// quorumPatience is how long a majority may be silent. The servers of a stream answer its leader every second.
	quorumPatience = 4 * time.Second
)

// QuorumWatch finds out whether the NATS servers of a cluster store events at present. It probes the log while Run
// runs, and needs only a Log.
//
// An answer of the server that leads the stream proves nothing: a leader without a majority answers for up to 20 s more
// (nats-server 2.15.2, raft.go, lostQuorumInterval and lostQuorumCheck). So QuorumWatch also asks when the other
// servers last answered it.
type QuorumWatch struct {
	Log *Log

	silence atomic.Int64 // of a majority, as a time.Duration
}

// Run probes the log until ctx ends. It measures time in its own ticks, so that a process that does not run for a while
// does not blame the servers.
func (w *QuorumWatch) Run(ctx context.Context) error {
	answers := make(chan time.Duration)
	go w.probe(ctx, answers)
	tick := time.NewTicker(quorumPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.silence.Add(int64(quorumPause))
		case ago := <-answers:
			w.silence.Store(int64(ago))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// probe sends, after each probe that succeeds, how long ago a majority answered.
func (w *QuorumWatch) probe(ctx context.Context, answers chan<- time.Duration) {
	for {
		trying, end := context.WithTimeout(ctx, quorumProbeTime)
		servers, err := w.Log.Probe(trying)
		end()
		if ago, ok := majorityAnswered(servers); ok && err == nil {
			select {
			case answers <- ago:
			case <-ctx.Done():
				return
			}
		}
		if sleep.For(ctx, quorumPause) != nil {
			return
		}
	}
}

// Lost returns how long no majority of the servers has answered. It returns 0 while that is shorter than a slow machine
// explains.
func (w *QuorumWatch) Lost() time.Duration {
	if silence := time.Duration(w.silence.Load()); silence >= quorumPatience {
		return silence
	}
	return 0
}

// majorityAnswered returns how long ago a majority answered the leader. It reports false if there was none yet.
func majorityAnswered(servers *jetstream.ClusterInfo) (ago time.Duration, ok bool) {
	if servers == nil {
		return 0, true
	}
	all := []time.Duration{0} // the leader itself
	for _, other := range servers.Replicas {
		if !other.Offline && (other.Current || other.Active > 0) {
			all = append(all, other.Active)
		}
	}
	others := (len(servers.Replicas) + 1) / 2 // that make a majority with the leader
	if len(all) <= others {
		return 0, false
	}
	slices.Sort(all)
	return all[others], true
}
