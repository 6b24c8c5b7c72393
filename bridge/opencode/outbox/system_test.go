package outbox_test

import (
	"testing"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

// system is a bridgetest.System with helpers for this package.
type system struct{ *bridgetest.System }

func newSystem(t testing.TB) *system {
	t.Helper()
	return &system{bridgetest.NewSystem(t)}
}

// connected returns a system with an outbox that is connected.
func connected(t testing.TB) (*system, *bridgetest.Running) {
	t.Helper()
	s, r := bridgetest.Connected(t)
	return &system{s}, r
}

// facts returns the bodies of a chat's events of one kind.
func facts[D events.Data](s *system, chat string) []D {
	s.T.Helper()
	return bridgetest.Facts[D](s.System, chat)
}
