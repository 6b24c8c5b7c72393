package exec

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

func TestASignalNeedsNoDiskSpace(t *testing.T) {
	expect.Long(t, "fills a disk")
	t.Parallel()
	is := is.New(t)
	disk := t.TempDir()
	eventstest.SmallDisk(t, disk, 120)
	s := newSystemIn(t, filepath.Join(disk, "nats"))
	s.serveWorker()
	exec, _ := s.detached(untilStop)
	remove := eventstest.FillDisk(t, disk, 0)
	e, err := events.New("c1", handlerstest.Alice, events.ChatUpdated{})
	is.NoErr(err)
	expect.Eventually(t, "the log stores nothing", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		e.ID = events.NewID()
		_, _ = s.Log.Append(ctx, e)
		return s.server.WriteError() != nil
	})
	c := Signal{Command: handlers.Command{ID: "cmd1", Actor: handlerstest.Alice}, Execution: exec}
	seq, err := s.exec.Signal(t.Context(), c)
	is.NoErr(err)
	is.Equal(seq, uint64(0))
	expect.Eventually(t, "the command has ended", func() bool {
		_, runs := s.exec.running.get(exec)
		return !runs
	})

	remove()
	is.NoErr(s.server.Reopen(t.Context()))
	s.Log.Reopened()
	is.Equal(s.finished(exec).Signal, "SIGTERM")
	all, data := handlerstest.History(t, s.Log, "c1")
	i := slices.Index(data, events.Data(events.ExecSignalled{Exec: exec, Signal: "SIGTERM"}))
	is.Equal([]string{all[i].Actor, all[i].Cause}, []string{handlerstest.Alice, "cmd1"})
	is.Equal(all[i+1].Subject.Kind, "exec.finished")
}
