package app

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/projectionstest"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web/api"
)

func TestMain(m *testing.M) { expect.Run(m) }

func TestASystemThatRunsAsRootSaysWhatCommandsCanChange(t *testing.T) {
	t.Parallel()
	confined, all := rootNote(isolation.Bwrap, "/work"), rootNote(isolation.None, "/work")
	expect.Contains(t, confined, "isolation bwrap confines them to /work")
	expect.Contains(t, confined, "belong to root")
	expect.Contains(t, all, "every file of this machine")
	for _, note := range []string{confined, all} {
		expect.Contains(t, note, "Start it as an ordinary user")
	}
	is.New(t).Equal(rootNote("refused", "/work"), "") // no command runs
}

// openedModel returns a system with nothing but its log and its read models.
func openedModel(t *testing.T) *System {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	s := &System{nc: nc, log: eventstest.Open(t, nc), loaded: make(chan struct{})}
	var err error
	s.model, err = projectionstest.Open(t.Context(), expect.MemoryDir(t), s.log)
	is.New(t).NoErr(err)
	t.Cleanup(func() { s.model.Close() })
	expect.Background(t, s.model.Run)
	return s
}

func TestAnEventThatCannotBeAppliedDegradesHealth(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openedModel(t)
	is.Equal(s.modelHealth().State, api.Starting)
	close(s.loaded)
	is.Equal(s.modelHealth().State, api.Ready)
	e, err := events.New("chat1", events.ActorSandbox, events.ExecFinished{Exec: "never"})
	is.NoErr(err)
	seq, err := s.log.Append(t.Context(), e)
	is.NoErr(err)
	is.NoErr(s.model.Wait(t.Context(), seq))
	health := s.modelHealth()
	is.Equal(health.State, api.Degraded)
	is.Equal(health.Detail.(map[string]any)["dead_letters"], 1)
}
