package opencode

import (
	"context"
	"sync"

	"pocketcoder/bridge/opencode/client"
)

// Instances returns the client of the OpenCode that runs now. The zero value is ready. It is safe for concurrent use.
type Instances struct {
	mu      sync.Mutex
	current *Instance
	begun   chan struct{} // closed when the next instance begins
}

// Begin records a new instance.
func (l *Instances) Begin(g Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = &g
	close(l.next())
	l.begun = nil
}

// Next returns a channel that is closed when the next instance begins.
func (l *Instances) Next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next()
}

func (l *Instances) next() chan struct{} {
	if l.begun == nil {
		l.begun = make(chan struct{})
	}
	return l.begun
}

// Client returns the client of the current instance. It waits until there is one.
func (l *Instances) Client(ctx context.Context) (*client.Client, error) {
	for {
		l.mu.Lock()
		g, begun := l.current, l.next()
		l.mu.Unlock()
		if g != nil {
			select {
			case <-g.Exited:
			default:
				return g.Client, nil
			}
		}
		select {
		case <-begun:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
