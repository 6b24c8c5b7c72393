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
func (i *Instances) Begin(started Instance) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current = &started
	close(i.next())
	i.begun = nil
}

// Next returns a channel that is closed when the next instance begins.
func (i *Instances) Next() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.next()
}

func (i *Instances) next() chan struct{} {
	if i.begun == nil {
		i.begun = make(chan struct{})
	}
	return i.begun
}

// Client returns the client of the current instance. It waits until there is one.
func (i *Instances) Client(ctx context.Context) (*client.Client, error) {
	for {
		i.mu.Lock()
		current, begun := i.current, i.next()
		i.mu.Unlock()
		if current != nil {
			select {
			case <-current.Exited:
			default:
				return current.Client, nil
			}
		}
		select {
		case <-begun:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
