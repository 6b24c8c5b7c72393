package opencode

import (
	"context"
	"errors"
	"reflect"

	"pocketcoder/bridge/opencode/provider"
)

// errRestart ends a life of OpenCode that Restart ends.
var errRestart = errors.New("it is started with other keys")

// Replace sets the provider for the next starts of OpenCode.
func (s *Supervisor) Replace(p provider.Provider) { s.replaced.Store(&p) }

// NeedsRestart reports whether the running OpenCode has another provider than the next one gets. It has not if only
// keys differ that OpenCode does not get.
func (s *Supervisor) NeedsRestart() bool {
	given := s.given.Load()
	return given != nil && !reflect.DeepEqual(*given, s.publicProvider())
}

// current returns the provider for the next start.
func (s *Supervisor) current() provider.Provider {
	if p := s.replaced.Load(); p != nil {
		return *p
	}
	return s.Provider
}

// Restart ends the running OpenCode. Run starts another one at once. Turns that run are lost.
func (s *Supervisor) Restart() {
	if end := s.endLife.Load(); end != nil {
		(*end)(errRestart)
	}
}

// lifeOf returns the context of a life, which Restart ends.
func (s *Supervisor) lifeOf(ctx context.Context) (life context.Context, end func()) {
	life, cancel := context.WithCancelCause(ctx)
	s.endLife.Store(&cancel)
	return life, func() { s.endLife.Store(nil); cancel(nil) }
}
