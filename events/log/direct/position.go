package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/events"
)

// Position is how far a reader has read the events that match some filters. A reader that keeps its position pays for
// new events only, however long the log is.
type Position struct {
	filters []string
	last    []uint64 // by filter: the sequence of the last event that was read
	through uint64   // every matching event up to here was read
}

// Start returns the position before the first event.
func Start(filters ...string) *Position {
	return &Position{filters: filters, last: make([]uint64, len(filters))}
}

// StartAfter returns the position behind a sequence.
func StartAfter(seq uint64, filters ...string) *Position {
	p := Start(filters...)
	p.through = seq
	return p
}

// Last returns the sequence of the last event that was read under a filter of the position, 0 if there is none.
func (p *Position) Last(filter string) uint64 { return p.last[slices.Index(p.filters, filter)] }

// Through returns a sequence up to which every event that matches a filter of the position was read.
func (p *Position) Through() uint64 { return p.through }

// isStart reports whether nothing was read yet.
func (p *Position) isStart() bool {
	return p.through == 0 && !slices.ContainsFunc(p.last, func(seq uint64) bool { return seq > 0 })
}

// Stream is a stream whose new messages are read from a position.
type Stream struct {
	Reader
	Name string
	// it has one replica, so that what one request found the next one finds, too
	Alone bool
	Last  func(context.Context) (uint64, error) // returns the sequence of its last message
	// reads from the start of a position. Such a read may take long, and the server answers the requests of a
	// connection one after the other
	FromStart Reader
}

// Newest returns the sequence of the newest event that matches one of the subjects, 0 if there is none.
func (r Stream) Newest(ctx context.Context, subjects ...string) (seq uint64, err error) {
	for _, subject := range subjects {
		m, err := r.Get(ctx, r.Name, map[string]any{"last_by_subj": subject})
		if err != nil {
			return seq, fmt.Errorf("find the newest event of %s: %w", subject, err)
		}
		if m == nil {
			continue
		}
		at, err := sequence(m)
		if err != nil {
			return seq, err
		}
		seq = max(seq, at)
	}
	return seq, nil
}

// NewestEach calls fn with the newest message of each subject that matches one of the filters, in order. It returns a
// sequence up to which these are complete: 0 if the server does not list them.
func (r Stream) NewestEach(ctx context.Context, filters []string, fn func(*nats.Msg, uint64) error) (uint64, error) {
	newest, upTo, err := r.newest(ctx, Start(filters...))
	if errors.Is(err, errNotListed) {
		return 0, nil
	}
	for _, m := range newest {
		err = cmp.Or(err, fn(m.Msg, m.seq))
	}
	return upTo, err
}

// ReadTo reads the messages after a sequence, up to the one at the sequence end, which matches filter.
func (r Stream) ReadTo(ctx context.Context, filter string, after, end uint64, fn func(*nats.Msg, uint64) error) error {
	return r.readTo(ctx, filter, after, end, func(m message) error { return fn(m.Msg, m.seq) })
}

// Advance calls fn with every message that is stored now and that the position does not include: filter by filter, and
// in order under each. The position then includes them, also those before an error.
//
// The server's index holds the first and the last block of each subject, and nothing between. A read that finds no
// more events ends at the end of the log, and loads all that is not in memory. So Advance first requests the newest
// event of each subject, which costs the same in every log, and reads no further than these.
func (r Stream) Advance(ctx context.Context, p *Position, fn func(*nats.Msg, uint64) error) error {
	if p.isStart() {
		r.Reader = r.FromStart
	}
	newest, upTo, err := r.newest(ctx, p)
	isListed := !errors.Is(err, errNotListed)
	if err != nil && isListed {
		return err
	}
	for i, filter := range p.filters {
		from, each := max(p.last[i], p.through), each(&p.last[i], fn)
		if isListed {
			err = r.readNews(ctx, filter, from, matching(newest, filter), each)
		} else {
			err = r.readAll(ctx, filter, from, each)
		}
		if err != nil {
			return err
		}
	}
	isBehind := slices.ContainsFunc(newest, func(m message) bool { return !p.includes(m) }) // the replica that was read
	if !isBehind {
		p.through = max(p.through, upTo)
	}
	return nil
}

// includes reports whether the newest message of a subject was read.
func (p *Position) includes(m message) bool {
	for i, filter := range p.filters {
		if len(matching([]message{m}, filter)) > 0 && m.seq > max(p.last[i], p.through) {
			return false
		}
	}
	return true
}

type message struct {
	*nats.Msg
	seq uint64
}

func (m message) subject() string { return m.Header.Get(jetstream.SubjectHeader) }

// each returns a function that calls fn with a message and then notes its sequence in last.
func each(last *uint64, fn func(*nats.Msg, uint64) error) func(message) error {
	return func(m message) error {
		if err := fn(m.Msg, m.seq); err != nil {
			return err
		}
		*last = m.seq
		return nil
	}
}

// errNotListed means that the server does not list the newest messages: the filters match too many subjects, or it
// cannot load one.
var errNotListed = errors.New("the newest messages are not listed")

// nothingMatches is the description in the answer of a server that has no message of any of the subjects.
const nothingMatches = "No Results"

// isWide reports whether a filter matches subjects of many chats. The server would list all of them before it says
// that they are too many.
func isWide(filter string) bool {
	return filter == events.AllEvents || strings.HasPrefix(filter, events.ChatSubject("*", ""))
}

// newest returns the newest message of each subject, as far as the position does not include it, in order. upTo is the
// last sequence of the log when the server looked, or earlier, 0 if nothing matches.
func (r Stream) newest(ctx context.Context, p *Position) (newest []message, upTo uint64, err error) {
	if slices.ContainsFunc(p.filters, isWide) {
		return r.notListed(ctx)
	}
	q, err := r.newRequester(r.Name)
	if err != nil {
		return nil, 0, err
	}
	defer q.close()
	seen, request := p.through, map[string]any{"multi_last": p.filters, "seq": p.through + 1}
	end, err := q.request(ctx, request, func(m *nats.Msg, seq uint64) error {
		if seq > seen { // otherwise an answer to an earlier request has brought it
			newest, seen = append(newest, message{m, seq}), seq
		}
		return nil
	})
	switch {
	case errors.As(err, new(refusal)), err == nil && (end.left > 0 || end.none != "" && end.none != nothingMatches):
		return r.notListed(ctx)
	case err != nil:
		return nil, 0, fmt.Errorf("read the newest events of %s after %d: %w", strings.Join(p.filters, ", "), p.through, err)
	}
	return newest, end.upTo, nil
}

// notListed returns errNotListed and the last sequence of the log, as far as it is known.
func (r Stream) notListed(ctx context.Context) (_ []message, upTo uint64, err error) {
	if r.Alone { // otherwise another replica may be read than the one that says how long the stream is
		upTo, err = r.Last(ctx)
	}
	return nil, upTo, cmp.Or(err, errNotListed)
}

func matching(all []message, filter string) (matching []message) {
	words := strings.Split(filter, ".")
	for _, m := range all {
		if events.MatchesFilter(words, strings.Split(m.subject(), ".")) {
			matching = append(matching, m)
		}
	}
	return matching
}

// readAll reads the events after a sequence if the server does not list the newest ones.
func (r Stream) readAll(ctx context.Context, filter string, after uint64, fn func(message) error) error {
	if isWide(filter) {
		return r.readTo(ctx, filter, after, math.MaxUint64, fn)
	}
	m, err := r.Get(ctx, r.Name, map[string]any{"last_by_subj": filter})
	if err != nil {
		return err
	}
	if m != nil {
		end, err := sequence(m)
		if err != nil {
			return err
		}
		return r.readTo(ctx, filter, after, end, fn)
	}
	_, err = r.Read(ctx, r.Name, filter, after, func(m *nats.Msg, seq uint64) error { return fn(message{m, seq}) })
	return err
}

// readNews reads the events after a sequence. newest holds the newest event of each subject.
func (r Stream) readNews(ctx context.Context, filter string, after uint64, newest []message,
	fn func(message) error) error {
	if len(newest) == 0 {
		return nil
	}
	last := newest[len(newest)-1].seq
	if newest[0].seq > after && last-after == uint64(len(newest)) { // nothing else was appended since
		for _, m := range newest {
			if err := fn(m); err != nil {
				return err
			}
		}
		return nil
	}
	if after == 0 && r.Alone { // another replica might count fewer messages than it has listed
		return r.readScattered(ctx, filter, newest, fn)
	}
	return r.readTo(ctx, filter, after, last, fn)
}

// farApart is a number of sequences: a read of everything between takes longer than a few requests for each subject.
var farApart uint64 = 50_000

// readScattered reads all events of a filter. If few are far apart it reads each subject alone: most have one event or
// two, which the server finds without a look at the blocks between.
func (r Stream) readScattered(ctx context.Context, filter string, newest []message, fn func(message) error) error {
	first, total, err := r.first(ctx, filter)
	if err != nil {
		return err
	}
	last := newest[len(newest)-1]
	all := newest
	switch {
	case total == len(newest) || first.seq == last.seq:
	case total == 2:
		all = []message{first, last}
	case len(newest) == 1 || total > maxBatch || last.seq-first.seq < farApart:
		return r.readTo(ctx, filter, 0, last.seq, fn)
	default:
		all = nil
		for i, m := range newest {
			err := r.readScattered(ctx, m.subject(), newest[i:i+1], func(m message) error { all = append(all, m); return nil })
			if err != nil {
				return err
			}
		}
		slices.SortFunc(all, func(a, b message) int { return cmp.Compare(a.seq, b.seq) })
	}
	for _, m := range all {
		if err := fn(m); err != nil {
			return err
		}
	}
	return nil
}

// first returns the first message of a filter, and how many there are.
func (r Stream) first(ctx context.Context, filter string) (first message, total int, err error) {
	q, err := r.newRequester(r.Name)
	if err != nil {
		return first, 0, err
	}
	defer q.close()
	end, err := q.request(ctx, map[string]any{"seq": 1, "next_by_subj": filter, "batch": 1},
		func(m *nats.Msg, seq uint64) error {
			first = message{m, seq}
			return nil
		})
	if err != nil {
		return first, 0, fmt.Errorf("read the first event of %s: %w", filter, err)
	}
	return first, end.left + 1, nil
}

// alone is how many messages are requested one by one. With a batch the server also counts what is left, from the
// first block on.
const alone = 4

// readTo reads the events after a sequence, up to the one with the sequence end.
func (r Stream) readTo(ctx context.Context, filter string, after, end uint64, fn func(message) error) error {
	for n := 0; n < alone && after > 0 && after < end; n++ {
		m, err := r.Get(ctx, r.Name, map[string]any{"seq": after + 1, "next_by_subj": filter})
		if err != nil || m == nil {
			return err
		}
		if after, err = sequence(m); err == nil {
			err = fn(message{m, after})
		}
		if err != nil {
			return err
		}
	}
	if after >= end {
		return nil
	}
	_, err := r.readFrom(ctx, r.Name, filter, after, 1, func(m *nats.Msg, seq uint64) error {
		if seq > end {
			return errReached
		}
		return fn(message{m, seq})
	})
	if errors.Is(err, errReached) {
		return nil
	}
	return err
}

// errReached ends a read.
var errReached = errors.New("the end is reached")
