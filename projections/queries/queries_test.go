package queries

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

// system is a log with its read models.
type system struct {
	t     *testing.T
	log   *log.Log
	model *projections.Model
}

func newSystem(t *testing.T) system {
	t.Helper()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	m, err := projectionstest.Open(t.Context(), expect.MemoryDir(t), l)
	is.NoErr(err)
	t.Cleanup(func() { m.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return system{t, l, m}
}

// appended appends an event of chat1 and returns its sequence.
func (s system) appended(d events.Data) uint64 {
	s.t.Helper()
	e, err := events.New("chat1", events.ActorSystem, d)
	if err != nil {
		s.t.Fatal(err)
	}
	seq, err := s.log.Append(s.t.Context(), e)
	if err != nil {
		s.t.Fatal(err)
	}
	return seq
}

func TestEvaluatedReturnsWhereTheFirstRequestIsThatIsNotEvaluated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.appended(events.ChatCreated{Title: "chat"})
	evaluated := func() uint64 {
		t.Helper()
		is.NoErr(s.model.CatchUp(t.Context()))
		seq, err := Evaluated(s.model)(t.Context())
		is.NoErr(err)
		return seq
	}
	request := func(id string) uint64 {
		return s.appended(events.PermissionRequested{Permission: id, Type: "bash", Patterns: []string{"ls"}})
	}
	request("p1")
	second := request("p2")
	third := request("p3")
	s.appended(events.PermissionDecided{Permission: "p1", Decision: events.Denied})
	is.Equal(evaluated(), second-1)
	s.appended(events.PermissionReferred{Permission: "p2", Reason: "no rule allows it"})
	is.Equal(evaluated(), third-1)
	last := s.appended(events.PermissionExpired{Permission: "p3"})
	is.Equal(evaluated(), last)
}
