// Package engines decides which projects have a running engine: an OpenCode with all that belongs to it. An engine
// starts when a chat of its project has something to do, or when a person opens the project. It stops when it was idle
// for some time, or when another engine has to start.
//
// Promises: an engine with a turn, or with a command that runs, does not stop. At most Most engines run at
// a time. Those that wait start in the order of what they have to do, and no engine waits for another one that is idle.
// An engine that fails touches no other, and starts again after a pause that grows.
//
// It must not know what an engine consists of, nor OpenCode.
package engines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"pocketcoder/projections"
)

// Engine is one run of an engine.
type Engine interface {
	// Run runs the engine until ctx ends or it fails.
	Run(ctx context.Context) error
	// Ready is closed when the engine takes work.
	Ready() <-chan struct{}
}

// Waker tells when the read models may list other work: see projections.Model.
type Waker interface {
	Woken() uint64
	Awake(ctx context.Context, after uint64) error
}

// DefaultIdle is the time without work after which an engine stops.
const DefaultIdle = 15 * time.Minute

// The pauses before an engine that failed is started again.
const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// Manager starts and stops engines. Fields without a comment must be set. It is safe for concurrent use.
type Manager[E Engine] struct {
	Open    func(ctx context.Context, id string) (E, error) // returns a new run
	Demands func(ctx context.Context) (map[string]projections.Demand, error)
	Waker   Waker // says when Demands may have changed
	Idle    time.Duration
	Most    int    // engines at a time; 0 for no limit
	Changed func() // called when an engine has started or ended; must not block
	Logger  *slog.Logger

	mu    sync.Mutex
	slots map[string]*slot[E]
	woken chan struct{} // has room for one
}

// slot is an engine, running or not.
type slot[E Engine] struct {
	engine   E
	open     bool // engine is set
	running  bool
	end      context.CancelFunc // nil once a stop was requested
	used     time.Time
	asked    int    // calls of Use that were not released
	started  bool   // once it was ready
	failures int    // since the last run that was stopped
	failed   uint64 // failures of all time
	after    time.Time
	err      error         // of the last run
	changed  chan struct{} // closed when it starts or ends
}

// Run starts and stops engines until ctx ends. Then it ends all of them and waits for them.
func (m *Manager[E]) Run(ctx context.Context) error {
	m.mu.Lock()
	m.init()
	m.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		woken := m.Waker.Woken()
		pause, err := m.step(ctx, &running)
		if err != nil && ctx.Err() == nil {
			m.Logger.Warn("list what engines have to do", "err", err)
		}
		waiting, cancel := context.WithTimeout(ctx, pause)
		changed := make(chan struct{})
		go func() { _ = m.Waker.Awake(waiting, woken); close(changed) }()
		select {
		case <-m.woken:
		case <-changed: // also after the pause
		}
		cancel()
		<-changed
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (m *Manager[E]) init() {
	if m.slots == nil {
		m.slots, m.woken = map[string]*slot[E]{}, make(chan struct{}, 1)
	}
}

// step acts once on what engines have to do. It returns the time after which an engine that failed may start again.
func (m *Manager[E]) step(ctx context.Context, running *sync.WaitGroup) (pause time.Duration, err error) {
	pause = max(firstPause, min(m.Idle/4, maxPause))
	demands, err := m.Demands(ctx)
	if err != nil {
		return firstPause, err
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	all, pause := m.states(demands, now, pause)
	start, stop := plan(all, m.Most, m.Idle, now)
	if len(stop) > 0 { // work may have come since
		m.mu.Unlock()
		demands, err = m.Demands(ctx)
		m.mu.Lock()
		if err != nil {
			return firstPause, err
		}
		all, pause = m.states(demands, now, pause)
		start, stop = plan(all, m.Most, m.Idle, now)
	}
	for _, id := range stop {
		s := m.slots[id]
		s.end()
		s.end = nil
	}
	for _, id := range start {
		m.start(ctx, id, running)
	}
	return pause, nil
}

// states returns what is known of each engine, and the time after which one that failed may start again, at most pause.
// m.mu must be held.
func (m *Manager[E]) states(demands map[string]projections.Demand, now time.Time, pause time.Duration) ([]state,
	time.Duration) {
	for id := range demands {
		m.slot(id)
	}
	var all []state
	for _, id := range slices.Sorted(maps.Keys(m.slots)) {
		s, d := m.slots[id], demands[id]
		if d.Since > 0 || s.asked > 0 {
			s.used = now
		} else if !s.running && !d.Waits {
			s.err = nil // nothing waits for it
		}
		all = append(all, state{id: id, demand: d, used: s.used, asked: s.asked > 0, running: s.running,
			ending: s.running && s.end == nil, failed: s.failures > 0, after: s.after})
		if !s.running && s.after.After(now) {
			pause = min(pause, s.after.Sub(now))
		}
	}
	return all, pause
}

// slot returns the slot of an engine. m.mu must be held.
func (m *Manager[E]) slot(id string) *slot[E] {
	m.init()
	s, ok := m.slots[id]
	if !ok {
		s = &slot[E]{changed: make(chan struct{})}
		m.slots[id] = s
	}
	return s
}

// start starts an engine. m.mu must be held.
func (m *Manager[E]) start(ctx context.Context, id string, running *sync.WaitGroup) {
	s := m.slots[id]
	life, end := context.WithCancel(ctx)
	s.running, s.end, s.used, s.err = true, end, time.Now(), nil
	running.Go(func() {
		defer end()
		began := time.Now()
		engine, err := m.Open(life, id)
		if err == nil {
			m.mu.Lock()
			s.engine, s.open = engine, true
			m.change(s)
			m.mu.Unlock()
			go m.noteReady(life, s, engine)
			err = engine.Run(life)
		}
		stopped := life.Err() != nil
		m.mu.Lock()
		defer m.mu.Unlock()
		var none E
		s.engine, s.open, s.running, s.end, s.err = none, false, false, nil, nil
		if !stopped {
			if time.Since(began) > maxPause {
				s.failures = 0
			}
			pause := min(firstPause<<min(s.failures, 10), maxPause)
			s.failures++
			s.failed++
			s.after, s.err = time.Now().Add(pause), err
			m.Logger.Error("an engine ended; it starts again when it has something to do", "project", id, "err", err,
				"pause", pause)
		} else {
			s.failures, s.after = 0, time.Time{}
		}
		m.change(s)
		m.wake()
	})
}

// noteReady notes that an engine takes work.
func (m *Manager[E]) noteReady(life context.Context, s *slot[E], engine E) {
	select {
	case <-engine.Ready():
		m.mu.Lock()
		s.started = true
		m.mu.Unlock()
		m.Changed()
	case <-life.Done():
	}
}

// change tells those that wait for an engine that it has started or ended. m.mu must be held.
func (m *Manager[E]) change(s *slot[E]) {
	close(s.changed)
	s.changed = make(chan struct{})
	m.Changed()
}

func (m *Manager[E]) wake() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// Use returns the engine of a project once it takes work. It starts the engine if it does not run. The engine does not
// stop until release is called. Use returns an error if ctx ends earlier, or if the engine fails meanwhile.
func (m *Manager[E]) Use(ctx context.Context, id string) (engine E, release func(), err error) {
	m.mu.Lock()
	s := m.slot(id)
	s.asked++
	before := s.failed
	m.mu.Unlock()
	done := sync.OnceFunc(func() {
		m.mu.Lock()
		s.asked--
		s.used = time.Now()
		m.mu.Unlock()
		m.wake()
	})
	defer func() {
		if err != nil {
			done()
		}
	}()
	m.wake()
	for {
		m.mu.Lock()
		changed, open, last, failed := s.changed, s.open && s.end != nil, s.err, s.failed > before
		engine = s.engine
		m.mu.Unlock()
		if failed && last != nil {
			return engine, nil, last
		}
		var ready <-chan struct{}
		if open {
			ready = engine.Ready()
		}
		select {
		case <-ready:
			return engine, done, nil
		case <-changed:
		case <-ctx.Done():
			return engine, nil, fmt.Errorf("the engine of project %s has not started: %w", id, errors.Join(ctx.Err(), last))
		}
	}
}

// Running returns the engines that run, also those that start or stop, by project.
func (m *Manager[E]) Running() map[string]E {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]E{}
	for id, s := range m.slots {
		if s.open {
			all[id] = s.engine
		}
	}
	return all
}

// Started reports whether the engine of a project takes work, or has done so.
func (m *Manager[E]) Started(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.slots[id]
	return known && s.started
}

// Errors returns why engines that do not run have ended, by project.
func (m *Manager[E]) Errors() map[string]error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]error{}
	for id, s := range m.slots {
		if s.err != nil {
			all[id] = s.err
		}
	}
	return all
}
