package sandbox

import (
	"fmt"
	"sync"
	"time"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

const (
	// how long a shared network is kept after its last command. The next command then starts as fast as the ones before
	loopbackIdle = time.Minute
	// how many networks without commands are kept
	maxIdleLoopbacks = 64
)

// loopbackKey names the commands that share a network. A command without a proxy does not share one with commands that
// have a proxy, because those could pass its connections on.
type loopbackKey struct {
	group string
	proxy bool
}

// loopbacks are the networks that commands share. The worker holds them, so they end with it.
type loopbacks struct {
	create func() (*isolation.Loopback, error)
	idle   time.Duration // loopbackIdle, except in tests

	mu    sync.Mutex
	byKey map[loopbackKey]*sharedLoopback
}

func newLoopbacks() loopbacks {
	return loopbacks{create: isolation.NewLoopback, idle: loopbackIdle, byKey: map[loopbackKey]*sharedLoopback{}}
}

type sharedLoopback struct {
	open     func() (*isolation.Loopback, error) // creates it once
	commands int
	expiry   *time.Timer // runs while commands is 0
}

// join returns the network that the command of r shares, or nil if it has its own. release ends the command's use.
func (l *loopbacks) join(r wire.Request) (shared *isolation.Loopback, release func(), err error) {
	if r.Loopback == "" {
		return nil, func() {}, nil
	}
	key := loopbackKey{r.Loopback, r.Network != ""}
	l.mu.Lock()
	s := l.byKey[key]
	if s == nil {
		s = &sharedLoopback{open: sync.OnceValues(l.create)}
		s.expiry = time.AfterFunc(l.idle, func() { l.expire(key, s) })
		l.byKey[key] = s
	}
	s.commands++
	s.expiry.Stop()
	l.mu.Unlock()
	if shared, err = s.open(); err != nil {
		l.release(key, s)
		l.expire(key, s)
		return nil, nil, fmt.Errorf("create the network that the commands of a chat share: %w", err)
	}
	return shared, sync.OnceFunc(func() { l.release(key, s) }), nil
}

func (l *loopbacks) release(key loopbackKey, s *sharedLoopback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.commands--
	if s.commands > 0 {
		return
	}
	idle := 0
	for _, other := range l.byKey {
		if other.commands == 0 {
			idle++
		}
	}
	if idle > maxIdleLoopbacks {
		l.remove(key, s)
		return
	}
	s.expiry.Reset(l.idle)
}

// expire removes a network that no command has used for a while.
func (l *loopbacks) expire(key loopbackKey, s *sharedLoopback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.commands == 0 {
		l.remove(key, s)
	}
}

func (l *loopbacks) remove(key loopbackKey, s *sharedLoopback) {
	if l.byKey[key] != s {
		return
	}
	delete(l.byKey, key)
	s.expiry.Stop()
	if shared, err := s.open(); err == nil {
		shared.Close()
	}
}

// close removes all networks.
func (l *loopbacks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, s := range l.byKey {
		l.remove(key, s)
	}
}
