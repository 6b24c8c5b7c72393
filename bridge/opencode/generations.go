package opencode

import (
	"context"
	"sync"

	"pocketcoder/bridge/opencode/client"
)

// Generations returns the client of the OpenCode that runs now. The zero value is ready. It is safe for concurrent use.
type Generations struct {
	mu      sync.Mutex
	current *Generation
	begun   chan struct{} // closed when the next generation begins
}

// Begin records a new generation.
func (l *Generations) Begin(g Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = &g
	close(l.next())
	l.begun = nil
}

// Next returns a channel that is closed when the next generation begins.
func (l *Generations) Next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next()
}

func (l *Generations) next() chan struct{} {
	if l.begun == nil {
		l.begun = make(chan struct{})
	}
	return l.begun
}

// Client returns the client of the current generation. It waits until there is one.
func (l *Generations) Client(ctx context.Context) (*client.Client, error) {
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
