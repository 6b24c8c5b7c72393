// Package outbox carries out effects: work outside the system that events require, such as a notification, a message of
// a channel, a webhook, or a message to OpenCode. A Loop carries out the effects of one kind with these functions of
// the kind:
//
//	Open   lists the open effects. An event has opened each of them, and no event has ended it yet
//	Plan   chooses the effects that are tried now
//	Try    tries an effect and appends the event that records the outcome and ends the effect. If another package appends
//	       that event, as ingest does for the reply of OpenCode, the effect is Succeeded until then
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
	Target string        // the effects of one target are tried one at a time
	Pause  time.Duration // between its tries; 0 for the pauses of the Loop
	Of     T
	Progress
}

// Progress is what a Loop knows of the tries of an open effect.
type Progress struct {
	Tried     int       // tries that failed
	After     time.Time // when it may be tried again
	Succeeded bool      // a try has succeeded, but the event that ends the effect has not arrived yet

	Deferred bool   // the last try returned an Again with OrWoken
	woken    uint64 // of Model before that try; if it has changed, After does not count
}

// Again is the error of a try that does not count. The effect may be tried again after a pause.
type Again struct {
	Err     error // nil if nothing failed
	After   time.Duration
	OrWoken bool // earlier, if an event may have changed the open effects since the try began
}

func (a Again) Error() string { return fmt.Sprint("try again: ", a.Err) }
func (a Again) Unwrap() error { return a.Err }

// Loop carries out effects of one kind. Fields without a comment must be set.
type Loop[T any] struct {
	Name   string // of the effects, for the log
	Log    *log.Log
	Model  *projections.Model
	Logger *slog.Logger
	Pauses []time.Duration // between tries; the last one repeats

	// Open lists the open effects in order. It is called when an event or the end of a try may have changed them, and at
	// the latest after next.
	Open func(ctx context.Context) (open []Effect[T], next time.Duration, err error)
	Try  func(ctx context.Context, e Effect[T]) error
	// Plan returns the open effects that are tried now, such as InOrder. running are those whose try has not ended.
	Plan func(open, running []Effect[T], now time.Time) []Effect[T]

	// Most limits how many effects of a target wait; 0 is no limit. Beyond it, Drop records that the oldest was dropped.
	// The first is not dropped, because its try may have begun.
	Most int
	Drop func(ctx context.Context, e Effect[T]) error

	// Ready waits until effects can be tried. The channel that it returns is closed when effects that failed may be
	// tried again at once. It may be nil.
	Ready func(ctx context.Context) (<-chan struct{}, error)

	listing  time.Duration        // how long Open took
	listed   time.Time            // when it returned
	progress map[string]Progress  // of the open effects
	running  map[string]Effect[T] // whose try has not ended
	ended    chan func()          // notes the result of a try
	trying   sync.WaitGroup
	reset    <-chan struct{} // the result of Ready
}

const (
	failPause   = time.Second     // after the open effects could not be listed, or one could not be dropped
	lastTimeout = 2 * time.Second // of the request for the end of the log
	maxDropped  = 200             // effects that are dropped at once before others are tried
	maxListing  = time.Second     // see gather
)

// Run carries out effects until ctx ends, and waits for the tries that it began. The read models must have caught up.
func (l *Loop[T]) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	l.progress, l.running, l.ended = map[string]Progress{}, map[string]Effect[T]{}, make(chan func())
	defer l.trying.Wait()
	defer cancel()
	for ctx.Err() == nil {
		if l.Ready != nil {
			reset, err := l.Ready(ctx)
			if err != nil {
				return err
			}
			l.forgetPauses() // the earlier channel may have been closed meanwhile
			l.reset = reset
		}
		woken := l.Model.Woken()
		next, err := l.start(ctx, woken)
		if err != nil && ctx.Err() == nil {
			l.Logger.Warn("list open "+l.Name, "err", err)
			next = failPause
		}
		l.wait(ctx, woken, next)
		l.gather(ctx)
	}
	return ctx.Err()
}

// start begins the tries that are due. It returns the time after which more may be due. woken is the value of
// Model.Woken.
func (l *Loop[T]) start(ctx context.Context, woken uint64) (next time.Duration, err error) {
	asking, cancel := context.WithTimeout(ctx, lastTimeout)
	last, err := l.Log.Last(asking)
	cancel()
	if err == nil {
		err = l.Model.Wait(ctx, last) // read models that are being rebuilt are behind the log
	}
	if err != nil {
		return 0, err
	}
	began := time.Now()
	open, next, err := l.Open(ctx)
	l.listed = time.Now()
	l.listing = min(l.listed.Sub(began), maxListing)
	if err != nil || l.Model.Seq() < last { // a rebuild began meanwhile; its end wakes the loop
		return next, err
	}
	open, isLeft := l.drop(ctx, open)
	if isLeft {
		next = min(next, failPause)
	}
	known, now := map[string]Progress{}, time.Now()
	for i, e := range open {
		open[i].Progress = l.progress[e.Key]
		if open[i].Deferred && open[i].woken != woken {
			open[i].After = time.Time{}
		}
		known[e.Key] = open[i].Progress
		if after := open[i].After; after.After(now) {
			next = min(next, after.Sub(now))
		}
	}
	l.progress = known
	for _, e := range l.Plan(open, slices.Collect(maps.Values(l.running)), now) {
		l.running[e.Key] = e
		reset := l.reset
		l.trying.Go(func() {
			err := l.Try(ctx, e)
			select {
			case l.ended <- func() { l.end(e, err, woken, reset) }:
			case <-ctx.Done():
			}
		})
	}
	return next, nil
}

// drop drops effects of targets for which too many wait, and returns the others. isLeft reports whether some of these
// must still be dropped: drop drops maxDropped at most, an equal share of each target, and some drops may fail.
func (l *Loop[T]) drop(ctx context.Context, open []Effect[T]) (rest []Effect[T], isLeft bool) {
	if l.Most == 0 {
		return open, false
	}
	waiting, full := map[string]int{}, map[string]int{}
	for _, e := range open {
		if waiting[e.Target]++; waiting[e.Target] > l.Most {
			full[e.Target] = 0
		}
	}
	if len(full) == 0 {
		return open, false
	}
	var excess []Effect[T]
	isLater, share := map[string]bool{}, max(1, maxDropped/len(full))
	for _, e := range open {
		if _, runs := l.running[e.Key]; waiting[e.Target] > l.Most && isLater[e.Target] && !runs {
			if full[e.Target] < share && len(excess) < maxDropped {
				excess = append(excess, e)
				waiting[e.Target]--
				full[e.Target]++
			} else {
				isLeft = true
			}
		}
		isLater[e.Target] = true
	}
	errs := make([]error, len(excess))
	var dropping sync.WaitGroup
	for i, e := range excess {
		dropping.Go(func() { errs[i] = l.Drop(ctx, e) })
	}
	dropping.Wait()
	dropped := map[string]bool{}
	for i, e := range excess {
		if dropped[e.Key] = errs[i] == nil; errs[i] != nil {
			l.Logger.Warn("drop one of the "+l.Name, "effect", e.Key, "target", e.Target, "err", errs[i])
			isLeft = true
		}
	}
	return slices.DeleteFunc(open, func(e Effect[T]) bool { return dropped[e.Key] }), isLeft
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
func (l *Loop[T]) wait(ctx context.Context, woken uint64, next time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, next)
	defer cancel()
	awake := make(chan error, 1)
	go func() { awake <- l.Model.Awake(waiting, woken) }()
	select {
	case end := <-l.ended:
		end()
	case <-l.reset:
		l.forgetPauses()
	case <-awake:
	}
}

// gather blocks until as much time has passed since the last listing as that took, and notes the results of the tries
// that end meanwhile. So a Loop with many open effects lists them at most half of the time, and each listing finds more
// effects to try. A Loop that was idle does not block.
func (l *Loop[T]) gather(ctx context.Context) {
	enough := time.After(time.Until(l.listed.Add(l.listing)))
	for {
		select {
		case end := <-l.ended:
			end()
		case <-enough:
			return
		case <-ctx.Done():
			return
		}
	}
}

// forgetPauses lets no effect wait for its next try any more, if reset is closed.
func (l *Loop[T]) forgetPauses() {
	select {
	case <-l.reset:
		for key, p := range l.progress {
			p.After = time.Time{}
			l.progress[key] = p
		}
	default:
	}
}

// end notes the result of a try. woken is the value of Model.Woken before it, and reset is the result of Ready.
func (l *Loop[T]) end(e Effect[T], err error, woken uint64, reset <-chan struct{}) {
	delete(l.running, e.Key)
	p := l.progress[e.Key]
	if p.Succeeded = err == nil; !p.Succeeded {
		pauses := l.Pauses
		if e.Pause > 0 {
			pauses = []time.Duration{e.Pause}
		}
		again := Again{}
		p.Deferred, p.woken = errors.As(err, &again) && again.OrWoken, woken
		p.fail(err, pauses, l.Logger.With("effect", e.Key, "target", e.Target))
		select {
		case <-reset: // during the try
			p.After = time.Time{}
		default:
		}
	}
	l.progress[e.Key] = p
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

// Pause returns the pause after a failed try. tried is the number of tries that failed before it.
func Pause(pauses []time.Duration, tried int) time.Duration {
	if len(pauses) == 0 {
		return failPause
	}
	return pauses[min(tried, len(pauses)-1)]
}

// Repeat tries one effect until try succeeds or ctx ends, for effects that are read one after the other instead of
// listed by a Loop. try gets the number of tries that failed. A conflict is returned at once.
func Repeat(ctx context.Context, logger *slog.Logger, pauses []time.Duration,
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

// Patient returns a context for the request of a try. It ends shutdownGrace after ctx: a response that still arrives
// then keeps a new process from sending the request again.
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
