package outbox_test

import (
	"testing"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/events"
)

// system is a bridgetest.System with what the tests of this package do and see.
type system struct{ *bridgetest.System }

func newSystem(t testing.TB) *system {
	t.Helper()
	return &system{bridgetest.NewSystem(t)}
}

// facts are the bodies of a chat's events of one kind of our own.
func facts[D events.Data](s *system, chat string) []D {
	s.T.Helper()
	return bridgetest.Facts[D](s.System, chat)
}
