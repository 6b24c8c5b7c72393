package opencode

import (
	"context"
	"errors"
	"reflect"

	"pocketcoder/bridge/opencode/provider"
)

// errRestart is the cause when Restart ends a run of OpenCode.
var errRestart = errors.New("it is started with another configuration")

// Replace sets the provider for the next starts of OpenCode.
func (s *Supervisor) Replace(p provider.Provider) { s.running.Store(&p) }

// SetSkills sets the skills for the next starts of OpenCode: the content of SKILL.md by the name of the skill.
func (s *Supervisor) SetSkills(skills map[string]string) { s.skills.Store(&skills) }

// startConfig is the configuration that OpenCode reads only at its start.
type startConfig struct {
	provider provider.Provider // as OpenCode gets it
	skills   map[string]string
}

// next returns the configuration of the next start.
func (s *Supervisor) next() startConfig {
	c := startConfig{provider: s.publicProvider()}
	if skills := s.skills.Load(); skills != nil {
		c.skills = *skills
	}
	return c
}

// NeedsRestart reports whether the next OpenCode gets another provider or other skills than the running one. Keys that
// OpenCode does not get make no difference.
func (s *Supervisor) NeedsRestart() bool {
	given := s.replacement.Load()
	return given != nil && !reflect.DeepEqual(*given, s.next())
}

// current returns the provider for the next start.
func (s *Supervisor) current() provider.Provider {
	if p := s.running.Load(); p != nil {
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
