package handlers

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
)

// State is the state that a decision needs. It is folded from events, and Apply cannot refuse an event.
type State interface{ Apply(events.Event) }

// Fold is a state with the sequence up to which the matching events are folded into it. Decisions on it run one at a
// time, so two decisions of this process never conflict. It is safe for concurrent use.
type Fold[S State] struct {
	mu      sync.Mutex
	state   S
	filters []string
	folded  *log.Position
	begin   Snapshot // nil once its events are folded
}

// Snapshot is a function that reads the past events that a state needs. It returns them in any order, and the sequence
// up to which it has looked for them.
type Snapshot func(context.Context, *log.Log) (needed []events.Event, through uint64, err error)

// NewFold returns a fold of the events that match one of the filters into s.
func NewFold[S State](s S, filters ...string) *Fold[S] {
	return &Fold[S]{state: s, filters: filters, folded: log.Start(filters...)}
}

// NewFoldFrom is NewFold for a state that needs few of the matching events. Of the past it reads only the events that
// begin returns.
func NewFoldFrom[S State](s S, begin Snapshot, filter string) *Fold[S] {
	f := NewFold(s, filter)
	f.begin = begin
	return f
}

// Only is the Snapshot of a state that needs only the events that match one of the filters.
func Only(filters ...string) Snapshot {
	return func(ctx context.Context, l *log.Log) ([]events.Event, uint64, error) {
		return Collect(ctx, l, log.Start(filters...))
	}
}

// Collect reads from each position to the end of the log. It returns the events, and the sequence up to which every
// position was read.
func Collect(ctx context.Context, l *log.Log, from ...*log.Position) (all []events.Event, through uint64, err error) {
	through = math.MaxUint64
	for _, p := range from {
		if err := l.Advance(ctx, p, func(e events.Event) error { all = append(all, e); return nil }); err != nil {
			return nil, 0, err
		}
		through = min(through, p.Through())
	}
	return all, through, nil
}

// Read calls fn with the current state.
func (f *Fold[S]) Read(ctx context.Context, l *log.Log, fn func(S) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.advance(ctx, l); err != nil {
		return err
	}
	return fn(f.state)
}

// Last returns the sequence of the last event folded under the first filter. Only decide functions of this fold may
// call it.
func (f *Fold[S]) Last() uint64 { return f.folded.Last(f.filters[0]) }

// firstPause is the longest pause after the first conflict. It doubles with each further one.
const firstPause = 20 * time.Millisecond

// pauseBefore waits before a command is decided again. Other processes decide meanwhile, and a replica of the log that
// was behind has received what this one conflicts with. The pause is random, so that writers do not meet again.
func pauseBefore(ctx context.Context, try int) error {
	if try == 0 {
		return nil
	}
	longest := firstPause << (try - 1)
	return sleep.For(ctx, longest/2+rand.N(longest/2))
}

// maxTries is how often a command is decided again because another writer was first.
const maxTries = 7

// Execute executes a command: it folds new events, calls decide, and appends the decided events as one batch at the
// expected sequences. After a conflict it tries again, up to maxTries times, and then refuses the command.
//
// The append expects that no new event matches the guarded filters. These are filters of the fold, at most one for each
// decided event; the default is the first filter. If decide returns no event, the command changes nothing, and Execute
// returns the seq of decide. In a transaction Execute appends nothing; it returns the seq of decide, 0 with events.
func (f *Fold[S]) Execute(ctx context.Context, l *log.Log, c Command,
	decide func(S) (all []events.Event, seq uint64, err error), guarded ...string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for try := range maxTries {
		if err := pauseBefore(ctx, try); err != nil {
			return 0, err
		}
		if err := f.advance(ctx, l); err != nil {
			return 0, err
		}
		all, seq, err := decide(f.state)
		// a read model that is ahead of the replica may have shown it
		if CodeOf(err) == NotFound && l.MayLag() && try+1 < maxTries {
			continue
		}
		if err != nil {
			return 0, err
		}
		writes := f.writes(all, cmp.Or(c.ID, c.Cause), guarded)
		if t := transactionOf(ctx); t != nil {
			return seq, t.add(writes, seq)
		}
		if len(writes) == 0 {
			return seq, nil
		}
		seq, err = l.Commit(ctx, writes)
		if !errors.Is(err, log.ErrConflict) {
			return seq, err
		}
	}
	return 0, Refuse(Conflict, tooBusy, maxTries)
}

const tooBusy = "The state changed %d times while this was decided. Try again."

// ExecuteOne is Execute for a command on a chat with at most one event. If decide returns nil as the event, the
// command was carried out before, at seq.
func (f *Fold[S]) ExecuteOne(ctx context.Context, l *log.Log, chat string, c Command,
	decide func(S) (d events.Data, seq uint64, err error), guarded ...string) (uint64, error) {
	return f.Execute(ctx, l, c, func(s S) ([]events.Event, uint64, error) {
		d, seq, err := decide(s)
		if err != nil || d == nil {
			return nil, seq, err
		}
		e, err := events.New(chat, c.Actor, d)
		return []events.Event{e}, 0, err
	}, guarded...)
}

// advance brings the state up to date with every filter, and with what a transaction has decided so far.
func (f *Fold[S]) advance(ctx context.Context, l *log.Log) error {
	if f.begin != nil {
		if err := f.foldBeginning(ctx, l); err != nil {
			return err
		}
	}
	err := l.Advance(ctx, f.folded, func(e events.Event) error { f.state.Apply(e); return nil })
	if err != nil {
		return err
	}
	if t := transactionOf(ctx); t != nil {
		for _, w := range t.writes {
			if f.matches(w.Event.RawSubject) {
				f.state.Apply(w.Event)
			}
		}
	}
	return nil
}

// foldBeginning folds the events that begin returns. It leaves the newest matching event to advance, because the next
// append expects its sequence.
func (f *Fold[S]) foldBeginning(ctx context.Context, l *log.Log) error {
	needed, through, err := f.begin(ctx, l)
	if err != nil {
		return err
	}
	newest, err := l.Newest(ctx, f.filters...)
	if err != nil {
		return err
	}
	through = min(through, max(newest, 1)-1)
	slices.SortFunc(needed, func(a, b events.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	needed = slices.CompactFunc(needed, func(a, b events.Event) bool { return a.Seq == b.Seq })
	for _, e := range needed {
		if e.Seq <= through {
			f.state.Apply(e)
		}
	}
	f.folded, f.begin = log.StartAfter(through, f.filters...), nil
	return nil
}

func (f *Fold[S]) matches(subject string) bool {
	tokens := strings.Split(subject, ".")
	return slices.ContainsFunc(f.filters, func(filter string) bool {
		return events.MatchesFilter(strings.Split(filter, "."), tokens)
	})
}

// writes returns the events with their cause. The first events get a guarded filter each.
func (f *Fold[S]) writes(all []events.Event, cause string, guarded []string) []log.Write {
	if len(guarded) == 0 {
		guarded = f.filters[:1]
	}
	writes := make([]log.Write, len(all))
	for i, e := range all {
		writes[i].Event = e.CausedBy(cause)
		if i < len(guarded) {
			writes[i].Expect = log.Expect{Filter: guarded[i], Last: f.folded.Last(guarded[i])}
		}
	}
	return writes
}

// Folds caches folds by the id of their aggregate, so that a decision reads only the events since the last one. The
// zero value is empty.
type Folds[S State] struct {
	mu   sync.Mutex
	by   map[string]*cachedFold[S]
	gets uint64 // number of calls of Get
}

// cachedFold is a fold with the number of the last call of Get that returned it.
type cachedFold[S State] struct {
	*Fold[S]
	used uint64
}

// MaxFolds is the maximal number of cached folds. A further one replaces the one that was used least recently.
const MaxFolds = 256

// Get returns the cached fold of an id, or begins one. A transaction that has decided events gets a fold of its own,
// because they may never be stored. So no command keeps a fold for a second decision.
func (k *Folds[S]) Get(ctx context.Context, id string, begin func() *Fold[S]) *Fold[S] {
	if t := transactionOf(ctx); t != nil && len(t.writes) > 0 {
		return begin()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	entry, ok := k.by[id]
	if !ok {
		if k.by == nil {
			k.by = map[string]*cachedFold[S]{}
		}
		if len(k.by) >= MaxFolds {
			k.evict()
		}
		entry = &cachedFold[S]{Fold: begin()}
		k.by[id] = entry
	}
	k.gets++
	entry.used = k.gets
	return entry.Fold
}

// evict removes the fold that was used least recently. Its cost is small beside that of folding a history.
func (k *Folds[S]) evict() {
	oldest, least := "", k.gets
	for id, entry := range k.by {
		if entry.used <= least {
			oldest, least = id, entry.used
		}
	}
	delete(k.by, oldest)
}
