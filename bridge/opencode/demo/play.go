package demo

import (
	"context"
	"errors"
	"sync"

	"pocketcoder/sleep"
)

var errCut = errors.New("connection cut by script")

// failures counts the requests of @@failfirst steps.
type failures struct {
	mu    sync.Mutex
	tries map[string]int
}

// try counts one request of the step with this key and returns how many there have been.
func (f *failures) try(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries == nil {
		f.tries = map[string]int{}
	}
	f.tries[key]++
	return f.tries[key]
}

// play answers with s. It returns errCut when the script cuts the connection, and ctx's error when the client
// disconnects.
func (m *Model) play(ctx context.Context, r *reply, s step) error {
	r.setHeader(s.header)
	if s.failFirst > 0 && m.failures.try(s.key) <= s.failFirst {
		return r.fail(s.failWith, s.failText)
	}
	for _, a := range s.acts {
		if s.status != 0 && a.wait == 0 {
			continue // an error sends nothing else, but may be slow
		}
		if err := a.play(ctx, r, s.argChunk); err != nil {
			return err
		}
	}
	if s.status != 0 {
		return r.fail(s.status, s.message)
	}
	return r.finish(s.reason, s.in, s.out)
}

func (a action) play(ctx context.Context, r *reply, argChunk int) error {
	switch {
	case a.cut:
		return errCut
	case a.hang:
		<-ctx.Done()
		return ctx.Err()
	case a.tool != "":
		return r.call(a, argChunk)
	case a.wait > 0:
		return sleep.For(ctx, a.wait)
	}
	for i, delta := range a.deltas {
		if i > 0 {
			if err := sleep.For(ctx, a.delay); err != nil {
				return err
			}
		}
		if err := r.text(delta, a.reasoning); err != nil {
			return err
		}
	}
	return nil
}
