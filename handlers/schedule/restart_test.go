package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
)

// fire appends runs of a schedule as they are stored: n in number, at intervals after a due time.
func (s *system) fire(id string, n int, after time.Time, every time.Duration) (last time.Time) {
	s.t.Helper()
	var writes []log.Write
	for i := range n {
		last = after.Add(time.Duration(i+1) * every)
		e, err := events.NewConfig(Collection, id, events.ScheduleActor(id), events.ScheduleFired{Due: last,
			Chat: "c", Message: fmt.Sprint(id, i)})
		is.New(s.t).NoErr(err)
		writes = append(writes, log.Write{Event: e})
	}
	_, err := s.log.Commit(s.t.Context(), writes)
	is.New(s.t).NoErr(err)
	return last
}

func TestAStartReadsFewEventsHoweverManyRunsThereWere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.save("a", map[string]any{"every": "15m"})
	s.save("b", map[string]any{"every": "15m"})
	begin, _, err := s.another().Due(t.Context())
	is.NoErr(err)
	is.Equal(len(begin), 0)
	last := time.Now().UTC()
	for range 4 {
		last = s.fire("a", log.MaxBatch, last, 15*time.Minute)
	}
	s.now = last.Add(15*time.Minute + time.Second) // all runs were more than a day ago

	conn := eventstest.Conn(t, s.server)
	h := s.on(eventstest.Open(t, conn), s.accounts(s.log))
	before := conn.Stats().InMsgs
	ids, _, err := h.Due(t.Context())
	is.NoErr(err)
	is.Equal(ids, []string{"a", "b"})
	if read := conn.Stats().InMsgs - before; read > 50 {
		t.Errorf("the scheduler received %d messages to read two schedules", read)
	}
	before = conn.Stats().InMsgs
	all, err := record.All[Schedule](t.Context(), record.Open(h.Log, Type), Collection)
	is.NoErr(err)
	is.Equal(len(all), 2)
	if read := conn.Stats().InMsgs - before; read > 50 {
		t.Errorf("Records received %d messages to read two schedules", read)
	}
	look(t, h, false)
	look(t, s.another(), false)
	fired, _ := s.decisions("a")
	is.Equal(len(fired), 4*log.MaxBatch+1)
	is.Equal(fired[len(fired)-1].Due.Sub(last).Round(time.Minute), 15*time.Minute) // it goes on where it was
}

// A scheduler that has just been started reads few events. It must know what one knows that has read all of them.
func TestARestartChangesNoDecision(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	accounts := s.accounts(s.log)
	start := func() *Schedules {
		return s.on(s.log, accounts)
	}
	known := func(h *Schedules) string {
		ids, next, err := h.Due(t.Context())
		is.New(t).NoErr(err)
		text := fmt.Sprint(ids, next.UTC())
		for i := range 3 {
			runs, err := h.Next(t.Context(), fmt.Sprint("s", i), 3)
			is.New(t).NoErr(err)
			text += fmt.Sprint(runs)
		}
		return text
	}
	running := start()
	s.now = time.Now().UTC().Add(3 * 24 * time.Hour)
	random := rand.New(rand.NewPCG(3, 5))
	for step := range 200 {
		did := s.change(start(), random)
		if a, b := known(running), known(start()); a != b {
			t.Fatalf("step %d, after %s:\nthe running scheduler knows %s\none that starts now knows %s", step, did, a, b)
		}
	}
}

// change does something to one of three schedules, and says what.
func (s *system) change(h *Schedules, random *rand.Rand) string {
	s.t.Helper()
	id := fmt.Sprint("s", random.IntN(3))
	by := handlers.Command{Actor: events.UserActor(s.alice)}
	set := func(values map[string]any) {
		_, _, err := s.records.Save(s.t.Context(), record.Save{Command: by, Collection: Collection, Record: id,
			Set: record.Fields(values), Role: account.User})
		is.New(s.t).True(err == nil || handlers.CodeOf(err) == handlers.NotFound)
	}
	switch n := random.IntN(12); n {
	case 0:
		_, err := s.records.Delete(s.t.Context(), record.Delete{Command: by, Collection: Collection, Record: id})
		is.New(s.t).True(err == nil || handlers.CodeOf(err) == handlers.NotFound)
		return "deleting " + id
	case 1:
		set(map[string]any{"enabled": random.IntN(2) == 0})
		return "pausing or resuming " + id
	case 2:
		set(map[string]any{"every": fmt.Sprint(10+random.IntN(5), "m")})
		return "changing " + id
	case 3, 4:
		_, err := h.Run(s.t.Context(), Run{Command: by, Schedule: id, Manual: true})
		is.New(s.t).True(err == nil || handlers.CodeOf(err) == handlers.NotFound)
		return "a manual run of " + id
	case 5: // of an earlier version
		e, err := events.NewConfig(Collection, id, by.Actor, events.ScheduleFired{Due: s.now, Chat: "c",
			Message: events.NewID(), Manual: true})
		is.New(s.t).NoErr(err)
		_, err = s.log.Append(s.t.Context(), e)
		is.New(s.t).NoErr(err)
		return "a manual run of an earlier version of " + id
	case 6, 7:
		all, err := record.All[Schedule](s.t.Context(), s.records, Collection)
		is.New(s.t).NoErr(err)
		for _, r := range all {
			if r.ID == id {
				return "nothing"
			}
		}
		s.save(id, map[string]any{"every": "10m"})
		return "saving " + id
	default:
		s.now = s.now.Add(time.Duration(random.IntN(15*60)) * time.Second)
		look(s.t, h, n == 8)
		return "looking at the clock"
	}
}
