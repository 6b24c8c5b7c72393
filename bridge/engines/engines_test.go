package engines_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/engines"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// testEngine takes work at once, and ends when the test says so.
type testEngine struct {
	ready  chan struct{}
	failed chan error
}

func (e *testEngine) Ready() <-chan struct{} { return e.ready }

func (e *testEngine) Run(ctx context.Context) error {
	close(e.ready)
	select {
	case err := <-e.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// world is what engines have to do.
type world struct {
	mu      sync.Mutex
	demands map[string]projections.Demand
	woken   uint64
	changed chan struct{}
	opened  []string
	engines map[string]*testEngine
}

func (w *world) Woken() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.woken
}

func (w *world) Awake(ctx context.Context, after uint64) error {
	for {
		w.mu.Lock()
		woken, changed := w.woken, w.changed
		w.mu.Unlock()
		if woken > after {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// set sets what an engine has to do.
func (w *world) set(id string, d projections.Demand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.demands[id] = d
	w.woken++
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) open(_ context.Context, id string) (*testEngine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, id)
	if id == "gone" {
		return nil, errors.New("its directory is gone")
	}
	w.engines[id] = &testEngine{make(chan struct{}), make(chan error, 1)}
	return w.engines[id], nil
}

func start(t *testing.T, most int, idle time.Duration) (*engines.Manager[*testEngine], *world) {
	w := &world{demands: map[string]projections.Demand{}, changed: make(chan struct{}),
		engines: map[string]*testEngine{}}
	m := &engines.Manager[*testEngine]{Open: w.open, Waker: w, Idle: idle, Most: most, Changed: func() {},
		Logger: slog.New(slog.DiscardHandler),
		Demands: func(context.Context) (map[string]projections.Demand, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return maps.Clone(w.demands), nil
		}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return m, w
}

func isRunning(m *engines.Manager[*testEngine], id string) bool { return m.Running()[id] != nil }

func TestAnEngineRunsWhileItHasSomethingToDo(t *testing.T) {
	t.Parallel()
	m, w := start(t, 1, time.Millisecond)
	w.set("a", projections.Demand{Since: 1})
	expect.Eventually(t, "a runs", func() bool { return isRunning(m, "a") })
	w.set("b", projections.Demand{Since: 2})
	w.set("a", projections.Demand{})
	expect.Eventually(t, "b has the place of a", func() bool { return isRunning(m, "b") && !isRunning(m, "a") })
	w.set("b", projections.Demand{})
	expect.Eventually(t, "b is idle", func() bool { return !isRunning(m, "b") })
}

func TestUseStartsAnEngine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, w := start(t, 1, time.Hour)
	for _, id := range []string{"a", "b", "a"} { // the one before is idle, and gives its place
		e, release, err := m.Use(t.Context(), id)
		is.NoErr(err)
		is.Equal(e, w.engines[id])
		release()
	}
	is.Equal(w.opened, []string{"a", "b", "a"})
	is.True(m.Started("b"))
	w.set("a", projections.Demand{Since: 1})
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	_, _, err := m.Use(ctx, "b") // a has work
	is.True(errors.Is(err, context.DeadlineExceeded))
}

func TestAnEngineThatFailsTouchesNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, w := start(t, 0, time.Hour)
	_, _, err := m.Use(t.Context(), "gone")
	is.Equal(err.Error(), "its directory is gone")
	first, _, err := m.Use(t.Context(), "a")
	is.NoErr(err)
	other, _, err := m.Use(t.Context(), "b")
	is.NoErr(err)
	first.failed <- errors.New("OpenCode is broken")
	expect.Eventually(t, "a has ended", func() bool { return m.Errors()["a"] != nil })
	is.Equal(m.Running()["b"], other)
	w.set("a", projections.Demand{Since: 1})
	expect.Eventually(t, "a starts again", func() bool { return isRunning(m, "a") })
	is.Equal(m.Errors()["a"], nil)
}

func TestAnEngineInUseDoesNotStop(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, w := start(t, 1, time.Millisecond)
	used, release, err := m.Use(t.Context(), "a")
	is.NoErr(err)
	w.set("b", projections.Demand{Since: 1})
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, _, err = m.Use(ctx, "b")
	is.True(errors.Is(err, context.DeadlineExceeded))
	is.Equal(m.Running()["a"], used)
	release()
	expect.Eventually(t, "b has the place of a", func() bool { return isRunning(m, "b") })
}

func TestAnEngineThatCannotStartEndsNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, w := start(t, 1, time.Hour)
	_, _, err := m.Use(t.Context(), "gone")
	is.Equal(err.Error(), "its directory is gone")
	idle, release, err := m.Use(t.Context(), "a")
	is.NoErr(err)
	release()
	w.set("gone", projections.Demand{Since: 1})
	_, release, err = m.Use(t.Context(), "a") // after the plan for the demand above
	is.NoErr(err)
	release()
	is.Equal(m.Running()["a"], idle)
	w.set("gone", projections.Demand{})
	expect.Eventually(t, "nothing waits for it", func() bool { return m.Errors()["gone"] == nil })
}
