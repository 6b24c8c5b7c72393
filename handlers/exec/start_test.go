package exec

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/sandbox/wire"
)

func TestTheStartOfALongCommandIsRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	s.exec.startDelay = time.Millisecond
	r, done := s.authorized(untilStop), make(chan wire.Result, 1)
	go func() {
		result, _, _ := s.shell(t.Context(), r)
		done <- result
	}()
	e, d := handlerstest.Await(t, s.Log, func(events.ExecStarted) bool { return true })
	is.Equal(d, events.ExecStarted{Exec: s.execOf(r.Call), Worker: "here", Isolation: "none"})
	is.Equal(e.Actor, events.ActorSandbox)
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecFinished](data)), 0)
	_, err := s.touch("stop")
	is.NoErr(err)
	is.Equal((<-done).ExitCode, 3)
	_, data = handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecStarted](data)), 1)
	is.Equal(len(handlerstest.Of[events.ExecFinished](data)), 1)
}

// The commands end at about startDelay.
func TestTheStartIsRecordedBeforeTheEndOrNotAtAll(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	s.exec.startDelay = 8 * time.Millisecond
	requests := make([]wire.Request, 32)
	for i := range requests {
		requests[i] = s.authorized(fmt.Sprintf("sleep 0.%03d", i/2))
	}
	handlerstest.AtOnce(len(requests), func(i int) error {
		s.shell(t.Context(), requests[i])
		return nil
	})
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecFinished](data)), len(requests))
	recorded := map[string]bool{} // executions whose start or end is recorded
	for _, d := range data {
		switch d := d.(type) {
		case events.ExecStarted:
			is.True(!recorded[d.Exec])
			recorded[d.Exec] = true
		case events.ExecFinished:
			recorded[d.Exec] = true
		}
	}
}

func TestTheStartOfAnEndedCommandIsNotRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	u := s.exec.newRun("c1", "", events.ExecRequested{Exec: "x1"})
	s.exec.running.remove(u)
	s.exec.announce(u) // no worker has started it
	s.exec.startDelay = time.Hour
	s.exec.started(u, wire.Start{Worker: "here"})
	s.exec.announce(u)
	_, data := handlerstest.History(t, s.Log, "c1")
	is.Equal(len(handlerstest.Of[events.ExecStarted](data)), 0)
}
