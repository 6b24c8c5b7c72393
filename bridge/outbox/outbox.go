// Package outbox carries out effects: work outside the system that events require, such as a notification, a message of
// a channel, a webhook, or a message to OpenCode. Each kind gives a Loop the open effects, a try of one, and in it the
// event that records the outcome.
//
//	Open   lists the open effects. They follow from the log: an event opened each, and none has ended it yet
//	Plan   chooses those that are tried now
//	Try    tries one and records its outcome, after which it is not open any more
//
// Promises:
//   - The state of a Loop is not needed after a restart: a new one on the same log repeats no effect whose outcome is
//     recorded, and forgets none.
//   - One effect of a target is tried at a time, in the order of Open. No target waits for another.
//   - A failed try is repeated after the pauses of RetryAfter. Try decides when an effect has failed for good.
//
// It must not know any kind of effect.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
	"pocketcoder/projections"
)

// RetryAfter are the pauses between the tries of an effect: 155 s in all.
var RetryAfter = []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second,
	80 * time.Second}

// Effect is an open effect.
type Effect[T any] struct {
	Key    string        // identifies it
	Target string        // whose effects are tried one at a time
	Pause  time.Duration // between its tries, instead of those of the Loop; 0 for those
	Of     T
	Progress
}

// Progress is what a Loop knows of the tries of an open effect.
type Progress struct {
	Tried     int       // tries that failed
	After     time.Time // when it may be tried again
	Succeeded bool      // the event that ends the effect is still to come
}

// Again is the error of a try that does not count. The effect may be tried again after a pause.
type Again struct {
	Err   error // nil if nothing failed
	After time.Duration
}

func (a Again) Error() string { return fmt.Sprint("try again: ", a.Err) }
func (a Again) Unwrap() error { return a.Err }

// Loop carries out effects of one kind. Fields without a comment must be set.
type Loop[T any] struct {
	Name   string // of the effects, for the log
	Model  *projections.Model
	Logger *slog.Logger
	Pauses []time.Duration // between tries; the last one repeats

	// Open lists the open effects in order. It is called when an event or the end of a try may have changed them, and at
	// the latest after next.
	Open func(ctx context.Context) (open []Effect[T], next time.Duration, err error)
	Try  func(ctx context.Context, e Effect[T]) error
	// Plan returns the open effects that are tried now. running are those whose try has not ended. InOrder if it is nil.
	Plan func(open, running []Effect[T], now time.Time) []Effect[T]

	// Most limits how many effects of a target wait. Drop records that one was dropped: the oldest except for the first,
	// which may be on its way. 0 for no limit
	Most int
	Drop func(ctx context.Context, e Effect[T]) error

	Woken <-chan struct{} // what else may have changed the open effects; may be nil
	// Ready waits until effects can be tried. It returns a channel that is closed once no effect has to wait for its
	// next try any more. It may be nil.
	Ready func(ctx context.Context) (<-chan struct{}, error)
}

// state is what a running Loop knows.
type state[T any] struct {
	*Loop[T]
	progress map[string]Progress  // of the open effects
	running  map[string]Effect[T] // whose try has not ended
	ended    chan result[T]
	trying   sync.WaitGroup
	reset    <-chan struct{}
}

// result is the result of a try.
type result[T any] struct {
	Effect[T]
	err   error
	reset <-chan struct{} // when the try began
}

// failPause is the pause after the open effects could not be listed.
const failPause = time.Second

// Run carries out effects until ctx ends, and waits for the tries that it began. The read models must have caught up.
func (l *Loop[T]) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &state[T]{Loop: l, progress: map[string]Progress{}, running: map[string]Effect[T]{}, ended: make(chan result[T])}
	defer s.trying.Wait()
	defer cancel()
	for ctx.Err() == nil {
		if l.Ready != nil {
			if s.reset, err = l.Ready(ctx); err != nil {
				return err
			}
		}
		woken := l.Model.Woken()
		next, err := s.start(ctx)
		if err != nil && ctx.Err() == nil {
			l.Logger.Warn("list open "+l.Name, "err", err)
			next = failPause
		}
		s.wait(ctx, woken, next)
	}
	return ctx.Err()
}

// start begins the tries that are due. It returns the time after which others may be.
func (s *state[T]) start(ctx context.Context) (next time.Duration, err error) {
	if err := s.Model.CatchUp(ctx); err != nil { // read models that are being rebuilt are behind the log
		return 0, err
	}
	seq := s.Model.Seq()
	open, next, err := s.Open(ctx)
	if err != nil || s.Model.Seq() < seq { // a rebuild began meanwhile; its end wakes the loop
		return next, err
	}
	if open, err = s.drop(ctx, open); err != nil {
		return next, err
	}
	known, now := map[string]Progress{}, time.Now()
	for i, e := range open {
		open[i].Progress = s.progress[e.Key]
		known[e.Key] = open[i].Progress
		if after := open[i].After; after.After(now) {
			next = min(next, after.Sub(now))
		}
	}
	s.progress = known
	plan := s.Plan
	if plan == nil {
		plan = InOrder
	}
	for _, e := range plan(open, slices.Collect(maps.Values(s.running)), now) {
		s.running[e.Key] = e
		reset := s.reset
		s.trying.Go(func() {
			r := result[T]{e, s.Try(ctx, e), reset}
			select {
			case s.ended <- r:
			case <-ctx.Done():
			}
		})
	}
	return next, nil
}

// drop drops the effects of targets for which too many wait, and returns the others.
func (s *state[T]) drop(ctx context.Context, open []Effect[T]) (rest []Effect[T], err error) {
	if s.Most == 0 {
		return open, nil
	}
	waiting, isLater := map[string]int{}, map[string]bool{}
	for _, e := range open {
		waiting[e.Target]++
	}
	for _, e := range open {
		if waiting[e.Target] > s.Most && isLater[e.Target] {
			waiting[e.Target]--
			if err := s.Drop(ctx, e); err != nil {
				return nil, err
			}
			continue
		}
		isLater[e.Target] = true
		rest = append(rest, e)
	}
	return rest, nil
}

// InOrder returns the first effect of each target, if it may be tried now.
func InOrder[T any](open, running []Effect[T], now time.Time) (due []Effect[T]) {
	busy := map[string]bool{}
	for _, e := range running {
		busy[e.Target] = true
	}
	for _, e := range open {
		if !busy[e.Target] && !e.Succeeded {
			busy[e.Target] = true
			if !now.Before(e.After) {
				due = append(due, e)
			}
		}
	}
	return due
}

// wait blocks until something may be due.
func (s *state[T]) wait(ctx context.Context, woken uint64, next time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, next)
	defer cancel()
	awake := make(chan error, 1)
	go func() { awake <- s.Model.Awake(waiting, woken) }()
	select {
	case r := <-s.ended:
		s.end(r)
	case <-s.reset:
		for key, p := range s.progress {
			p.After = time.Time{}
			s.progress[key] = p
		}
	case <-s.Woken:
	case <-awake:
	}
	for { // several tries may have ended
		select {
		case r := <-s.ended:
			s.end(r)
		default:
			return
		}
	}
}

// end notes the result of a try.
func (s *state[T]) end(r result[T]) {
	delete(s.running, r.Key)
	p := s.progress[r.Key]
	if r.err == nil {
		p.Succeeded = true
	} else {
		pauses := s.Pauses
		if r.Pause > 0 {
			pauses = []time.Duration{r.Pause}
		}
		p.fail(r.err, pauses, s.Logger.With("effect", r.Key, "target", r.Target))
		select {
		case <-r.reset: // during the try
			p.After = time.Time{}
		default:
		}
	}
	s.progress[r.Key] = p
}

// fail notes a try that failed.
func (p *Progress) fail(err error, pauses []time.Duration, logger *slog.Logger) {
	if again := (Again{}); errors.As(err, &again) {
		p.After = time.Now().Add(again.After)
		return
	}
	pause := Pause(pauses, p.Tried)
	p.Tried++
	p.After = time.Now().Add(pause)
	logger.Warn("carry out an effect", "try", p.Tried, "again", pause, "err", err)
}

// Pause returns the pause after a number of tries and one more have failed.
func Pause(pauses []time.Duration, tried int) time.Duration {
	if len(pauses) == 0 {
		return failPause
	}
	return pauses[min(tried, len(pauses)-1)]
}

// CarryOut tries one effect until try succeeds or ctx ends, for effects that are read one after the other instead of
// listed by a Loop. try gets the number of tries that failed. A conflict is returned at once.
func CarryOut(ctx context.Context, logger *slog.Logger, pauses []time.Duration,
	try func(ctx context.Context, tried int) error) error {
	for p := (Progress{}); ; {
		err := try(ctx, p.Tried)
		if err == nil || errors.Is(err, log.ErrConflict) || ctx.Err() != nil {
			return err
		}
		p.fail(err, pauses, logger)
		if err := sleep.For(ctx, time.Until(p.After)); err != nil {
			return err
		}
	}
}

// Limits of what a shutdown waits for: the response to a request, and then the record of an outcome.
const (
	shutdownGrace = 2 * time.Second
	recordTimeout = 3 * time.Second
	recordPause   = time.Second // before an outcome that could not be recorded is recorded again
)

// Patient returns a context for the request of a try. After the end of ctx a response may still come for a moment:
// without it, a new process would send the request again.
func Patient(ctx context.Context) (patient context.Context, cancel func()) {
	patient, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(shutdownGrace, end) })
	return patient, func() { stop(); end() }
}

// Record records the outcome of a try. It calls record until it succeeds or ctx has ended, because an effect without a
// recorded outcome is carried out again. A conflict is returned at once.
func Record(ctx context.Context, logger *slog.Logger, record func(ctx context.Context) error) error {
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		err := record(bounded)
		cancel()
		if err == nil || errors.Is(err, log.ErrConflict) || ctx.Err() != nil {
			return err
		}
		logger.Error("record the outcome of an effect", "err", err)
		if err := sleep.For(ctx, recordPause); err != nil {
			return err
		}
	}
}
