package watch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/watch"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// scheduleSystem is a scripted OpenCode with everything around it, and a clock.
type scheduleSystem struct {
	*bridgetest.System
	ahead atomic.Int64 // of the clock, in nanoseconds
}

func newScheduleSystem(t *testing.T) *scheduleSystem {
	t.Helper()
	s := &scheduleSystem{System: bridgetest.NewSystem(t)}
	s.Start()
	return s
}

// watch runs a watch, as a process does, until the test ends.
func (s *scheduleSystem) watch() { s.watchAfter(false) }

// watchAfter runs a watch of a process whose log has lost events or not.
func (s *scheduleSystem) watchAfter(loss bool) {
	w := watch.Schedules{Schedules: s.schedules(), Chats: s.Chats, Model: s.Model,
		Logger: handlerstest.Quiet(), Uncertain: loss}
	expect.Background(s.T, w.Run)
}

func (s *scheduleSystem) schedules() *schedule.Schedules {
	now := func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	return &schedule.Schedules{Log: s.Log, Chats: s.Chats, Now: now}
}

func (s *scheduleSystem) save(id string, set map[string]any) {
	s.T.Helper()
	fields := map[string]any{"name": "report", "prompt": "write " + id, "session_mode": "new", "every": "10m"}
	for name, value := range set {
		fields[name] = value
	}
	_, _, err := s.Records.Save(s.T.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: projections.ScheduleCollection, Record: id, Set: record.Fields(fields), New: true})
	s.Must(err)
}

// later moves the clock, and lets the watches look at it.
func (s *scheduleSystem) later(by time.Duration) {
	s.T.Helper()
	s.ahead.Add(int64(by))
	s.Chat() // an event wakes them
}

// prompt waits for the prompt whose text has these words.
func (s *scheduleSystem) prompt(words string) (found prompt) {
	s.T.Helper()
	expect.Eventually(s.T, "OpenCode is asked: "+words, func() bool {
		for _, r := range s.Requests("POST", "/prompt_async") {
			var p struct {
				MessageID string
				Parts     []struct{ Text string }
			}
			s.Must(json.Unmarshal([]byte(r.Body), &p))
			if strings.Contains(p.Parts[0].Text, words) {
				found = prompt{strings.Split(r.Path, "/")[2], p.MessageID, p.Parts[0].Text}
			}
		}
		return found.session != ""
	})
	return found
}

// step begins an answer to a prompt that costs something, and ends it if isLast.
func (s *scheduleSystem) step(p prompt, cost float64, isLast bool) {
	s.T.Helper()
	id, finish := client.NewID("msg", time.Now()), "tool-calls"
	if isLast {
		finish = "stop"
	}
	s.Happen(s.Durably(p.session, "message.updated", fmt.Sprintf(
		`{"sessionID":%q,"info":{"id":%q,"sessionID":%[1]q,"role":"assistant","parentID":%[3]q,"cost":%[4]v,"time":{"created":1,"completed":2},"finish":%[5]q}}`,
		p.session, id, p.message, cost, finish))...)
	if isLast {
		s.Happen(bridgetest.Plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`, p.session)))
	}
}

func (s *scheduleSystem) runs(id string) []projections.PricedRun {
	s.T.Helper()
	last, err := s.Log.Last(s.T.Context())
	s.Must(err)
	s.Must(s.Model.Wait(s.T.Context(), last))
	all, err := s.Model.ScheduleRuns(s.T.Context(), id, 10)
	s.Must(err)
	return all
}

func TestARunHasTheResultAndTheCostOfItsOwnTurn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newScheduleSystem(t)
	chat := s.Chat("hello")
	before := s.prompt("hello")
	s.save("a", map[string]any{"session_mode": "existing", "chat": chat})
	s.watch()
	s.watch() // a second process
	s.Submit(chat, "first", "second")
	s.later(10 * time.Minute)
	expect.Eventually(t, "the run waits", func() bool { return len(s.runs("a")) == 1 && s.runs("a")[0].State == "queued" })
	queue, err := s.Model.Queue(t.Context(), chat)
	is.NoErr(err)
	var order []string
	for _, m := range queue {
		order = append(order, string(m.Submitted))
	}
	expect.Contains(t, order[0], "write a") // before what the person wrote
	is.Equal(len(order), 3)
	s.step(before, 5, true)
	p := s.prompt("write a")
	expect.Eventually(t, "the run is running", func() bool { return s.runs("a")[0].State == "running" })
	s.step(p, 0.25, true)
	s.step(s.prompt("first"), 7, true)
	expect.Eventually(t, "the run is over", func() bool { return s.runs("a")[0].State == "completed" })
	all := s.runs("a")
	is.Equal(len(all), 1)
	is.Equal(all[0].Cost, 0.25)
	is.True(all[0].Started != "" && all[0].Finished != "")
}

func TestARunThatHasSpentItsBudgetIsStopped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newScheduleSystem(t)
	s.save("a", map[string]any{"max_cost": 0.5})
	s.watch()
	s.later(10 * time.Minute)
	p := s.prompt("write a")
	s.step(p, 0.4, false)
	is.Equal(len(s.Requests("POST", "/abort")), 0)
	s.step(p, 0.2, false)
	expect.Eventually(t, "it is aborted", func() bool { return len(s.Requests("POST", "/abort")) == 1 })
	s.Happen(bridgetest.Plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`, p.session)))
	expect.Eventually(t, "the run is over", func() bool { return s.runs("a")[0].Finished != "" })
	is.Equal(s.runs("a")[0].Reason, "The budget of this run is spent.")
	s.later(10 * time.Minute)
	p = s.prompt("write a")
	expect.Eventually(t, "the next run starts", func() bool { return len(s.runs("a")) == 2 })
}

func TestARunIsSkippedWhileTheLastOneIsNotOver(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newScheduleSystem(t)
	s.save("a", nil)
	s.watch()
	s.later(10 * time.Minute)
	p := s.prompt("write a")
	s.later(10 * time.Minute)
	expect.Eventually(t, "the second is skipped", func() bool { return len(s.runs("a")) == 2 })
	is.Equal([]string{s.runs("a")[0].State, s.runs("a")[0].Reason}, []string{"skipped", "The last run was not over."})
	s.step(p, 0, true)
	expect.Eventually(t, "the first is over", func() bool { return s.runs("a")[1].State == "completed" })
}

// After a loss, a run that is due at the start may be one that the log does not have any more.
func TestARunThatMayHaveBeenDoneBeforeALossIsSkipped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newScheduleSystem(t)
	s.save("a", nil)
	s.later(10 * time.Minute)
	s.watchAfter(true)
	expect.Eventually(t, "it is skipped", func() bool { return len(s.runs("a")) == 1 })
	is.Equal([]string{s.runs("a")[0].State, s.runs("a")[0].Reason},
		[]string{"skipped", "Events of the log were lost. This run may have been done already."})
	s.later(10 * time.Minute)
	s.prompt("write a")
	is.Equal(len(s.Requests("POST", "/prompt_async")), 1)
}
