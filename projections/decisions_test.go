package projections_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

func TestEvaluatedThroughReturnsWhereTheFirstRequestIsThatIsNotEvaluated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, expect.MemoryDir(t), log)
	appended := func(d events.Data) uint64 {
		t.Helper()
		seq, err := log.Append(t.Context(), own(t, events.ActorSystem, d))
		is.NoErr(err)
		return seq
	}
	evaluated := func() uint64 {
		t.Helper()
		is.NoErr(m.CatchUp(t.Context()))
		seq, err := m.EvaluatedThrough(t.Context())
		is.NoErr(err)
		return seq
	}
	request := func(id string) uint64 {
		return appended(events.PermissionRequested{Permission: id, Type: "bash", Patterns: []string{"ls"}})
	}
	appended(events.ChatCreated{Title: "chat"})
	request("p1")
	second, third := request("p2"), request("p3")
	appended(events.PermissionDecided{Permission: "p1", Decision: events.Denied})
	is.Equal(evaluated(), second-1)
	appended(events.PermissionReferred{Permission: "p2", Reason: "no rule allows it"})
	is.Equal(evaluated(), third-1)
	last := appended(events.PermissionExpired{Permission: "p3"})
	is.Equal(evaluated(), last)
}
