package schedule

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

// system is a log with an account, and schedulers over it whose clocks are one field.
type system struct {
	t       *testing.T
	server  *server.Server
	log     *log.Log
	records *record.Records
	alice   string
	now     time.Time
}

func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{t: t, server: eventstest.Server(t, expect.MemoryDir(t)), now: time.Now().UTC().Truncate(time.Hour)}
	s.log = eventstest.Open(t, eventstest.Conn(t, s.server))
	s.records = record.Open(s.log, Type, project.Places{}.Type())
	_, err := project.Ensure(t.Context(), s.records, project.Project{ID: events.DefaultEngine, Name: "w", Directory: "/w",
		Everyone: project.Member})
	is.New(t).NoErr(err)
	s.alice, _, err = s.accounts(s.log).CreateAccount(t.Context(), account.CreateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Email: "alice@example.org", Password: "correct horse battery",
		Role: account.User})
	is.New(t).NoErr(err)
	return s
}

func (s *system) accounts(l *log.Log) *account.Accounts {
	s.t.Helper()
	secrets, err := secret.Open(s.t.Context(), eventstest.Conn(s.t, s.server), 1)
	is.New(s.t).NoErr(err)
	a, err := account.Open(s.t.Context(), l, secrets)
	is.New(s.t).NoErr(err)
	a.HashMemory = 64
	return a
}

// another returns a scheduler as another process has it.
func (s *system) another() *Schedules {
	s.t.Helper()
	l := eventstest.Open(s.t, eventstest.Conn(s.t, s.server))
	return s.on(l, s.accounts(l))
}

// on returns a scheduler on a log.
func (s *system) on(l *log.Log, accounts *account.Accounts) *Schedules {
	records := record.Open(l, project.Places{}.Type(), project.MemberType)
	projects := &project.Projects{Records: records, Accounts: accounts}
	return &Schedules{Log: l, Chats: &chat.Chats{Log: l, Projects: projects}, Accounts: accounts,
		Now: func() time.Time { return s.now }}
}

// save stores a schedule with further fields, and decides nothing before now.
func (s *system) save(id string, set map[string]any) {
	s.t.Helper()
	fields := map[string]any{"name": "report", "prompt": "write it", "session_mode": "new", "user": s.alice,
		"time_zone": "UTC"}
	for name, value := range set {
		fields[name] = value
	}
	_, _, err := s.records.Save(s.t.Context(), record.Save{Command: handlers.Command{Actor: events.UserActor(s.alice)},
		Collection: Collection, Record: id, Set: record.Fields(fields), New: true, Role: account.User})
	is.New(s.t).NoErr(err)
}

// look does what a scheduler does when it looks at the clock.
func look(t testing.TB, h *Schedules, isBusy bool) {
	t.Helper()
	ids, _, err := h.Due(t.Context())
	is.New(t).NoErr(err)
	for _, id := range ids {
		_, err := h.Run(t.Context(), Run{Schedule: id, Busy: isBusy})
		is.New(t).NoErr(err)
	}
}

// decisions lists what happened to a schedule: due times of runs, and those that were skipped.
func (s *system) decisions(id string) (fired []events.ScheduleFired, skipped []events.ScheduleSkipped) {
	s.t.Helper()
	_, err := s.log.Fold(s.t.Context(), events.ConfigSubject(Collection, id, "*"), 0,
		func(e events.Event) error {
			switch d, _ := events.Decode(e); d := d.(type) {
			case events.ScheduleFired:
				fired = append(fired, d)
			case events.ScheduleSkipped:
				skipped = append(skipped, d)
			}
			return nil
		})
	is.New(s.t).NoErr(err)
	return fired, skipped
}

// checkRuns says that each run has its chat and its message, once.
func (s *system) checkRuns(fired []events.ScheduleFired) {
	s.t.Helper()
	is := is.New(s.t)
	messages := map[string]int{}
	for _, f := range fired {
		_, data := handlerstest.History(s.t, s.log, f.Chat)
		for _, m := range handlerstest.Of[events.MessageSubmitted](data) {
			messages[m.Message]++
		}
		if f.New {
			is.Equal(len(handlerstest.Of[events.ChatCreated](data)), 1)
			is.Equal(len(data), 2)
		}
	}
	is.Equal(len(messages), len(fired))
	for id, n := range messages {
		is.Equal([]any{id, n}, []any{id, 1})
	}
}

func TestManySchedulersStartEachRunOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.save("a", map[string]any{"every": "15m"})
	s.save("b", map[string]any{"every": "15m", "session_mode": "new", "model": "p/m"})
	var all []*Schedules
	for range 4 {
		all = append(all, s.another())
	}
	s.now = time.Now().UTC()
	const rounds = 6
	for i := range rounds {
		all[i%len(all)] = s.another() // one is started again
		s.now = s.now.Add(15 * time.Minute)
		for _, err := range handlerstest.AtOnce(len(all), func(i int) error {
			var failed error
			for _, id := range []string{"a", "b"} {
				if _, err := all[i].Run(t.Context(), Run{Schedule: id}); err != nil {
					failed = err
				}
			}
			return failed
		}) {
			is.NoErr(err)
		}
	}
	for _, id := range []string{"a", "b"} {
		fired, skipped := s.decisions(id)
		is.Equal([]int{len(fired), len(skipped)}, []int{rounds, 0})
		due := map[time.Time]bool{}
		for _, f := range fired {
			due[f.Due] = true
			is.Equal(f.Message, events.ScheduledMessage(id, f.Due, ""))
		}
		is.Equal(len(due), rounds)
		if id == "a" {
			s.checkRuns(fired)
		}
	}
	is.Equal(len(handlerstest.Records(t, s.log, "model_selection")), rounds)
}

// A process is killed while it appends: its connection is gone at any moment.
func TestAKilledSchedulerLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.save("a", map[string]any{"every": "15m", "overlap": "queue"})
	s.now = time.Now().UTC()
	const rounds = 12
	for i := range rounds {
		s.now = s.now.Add(15 * time.Minute)
		conn := eventstest.Conn(t, s.server)
		dying := s.on(eventstest.Open(t, conn), s.accounts(s.log))
		_, _, err := dying.Due(t.Context())
		is.NoErr(err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		done := make(chan struct{})
		go func() { defer close(done); _, _ = dying.Run(ctx, Run{Schedule: "a"}) }()
		for range i * 40 { // further along each time
			_ = conn.Stats()
		}
		conn.Close()
		cancel()
		<-done
		look(t, s.another(), false)
	}
	fired, skipped := s.decisions("a")
	is.Equal([]int{len(fired), len(skipped)}, []int{rounds, 0})
	s.checkRuns(fired)
}

// Nothing is appended to a chat on which the run did not decide.
func TestARunTakesNoChatThatExists(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.save("a", map[string]any{"every": "15m", "name": strings.Repeat("ü", chat.MaxTitle)})
	h := s.another()
	_, due, err := h.Due(t.Context())
	is.NoErr(err)
	s.now = due.Add(time.Second)
	taken := events.ScheduledChat(events.ScheduledMessage("a", due, ""))
	_, _, err = (&chat.Chats{Log: s.log}).Create(t.Context(), chat.Create{Chat: taken, User: "u1"})
	is.NoErr(err)
	look(t, h, false)
	_, data := handlerstest.History(t, s.log, taken)
	is.Equal(len(data), 1)
	fired, skipped := s.decisions("a")
	is.Equal([]int{len(fired), len(skipped)}, []int{0, 1})
	expect.Contains(t, skipped[0].Reason, "exists already")

	s.now = s.now.Add(15 * time.Minute) // the next run has its own chat, with as much of the name as a title has
	look(t, h, false)
	fired, _ = s.decisions("a")
	is.Equal(len(fired), 1)
	_, data = handlerstest.History(t, s.log, fired[0].Chat)
	is.Equal(handlerstest.Of[events.ChatCreated](data)[0].Title, strings.Repeat("ü", chat.MaxTitle/2))
}

func TestADowntimeLeadsToOneRunAtMost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.save("skips", map[string]any{"every": "1h"})
	s.save("runs", map[string]any{"every": "1h", "missed": "once"})
	s.save("once", map[string]any{"at": time.Now().Add(time.Hour).UTC().Format(events.TimeFormat)})
	began := time.Now().UTC()
	s.now = began.Add(5*time.Hour + 30*time.Minute) // five due times are over
	for range 3 {
		look(t, s.another(), false)
	}
	fired, skipped := s.decisions("skips")
	is.Equal([]int{len(fired), len(skipped)}, []int{0, 1})
	is.Equal(skipped[0].Reason, "PocketCoder did not run at that time.")
	is.Equal(skipped[0].Due.Sub(skipped[0].First), 4*time.Hour)
	fired, skipped = s.decisions("runs")
	is.Equal([]int{len(fired), len(skipped)}, []int{1, 0})
	is.Equal(fired[0].Due.Sub(fired[0].First), 4*time.Hour)
	last := fired[0].Due
	fired, _ = s.decisions("once")
	is.Equal(len(fired), 1)
	s.now = last.Add(time.Hour + time.Second) // the grid stays
	look(t, s.another(), false)
	for _, id := range []string{"skips", "runs"} {
		fired, _ = s.decisions(id)
		is.True(fired[len(fired)-1].Due.Sub(last).Round(time.Minute) == time.Hour) // each counts from when it was saved
	}
	fired, _ = s.decisions("once")
	is.Equal(len(fired), 1)
}

func TestAClockThatJumpsRepeatsNoRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.save("a", map[string]any{"every": "10m"})
	h := s.another()
	begin := time.Now().UTC()
	due := map[time.Time]bool{}
	for _, minutes := range []int{10, 20, 5, 12, 20, 30, 29, 31, -500, 40, 300, 41, 310} {
		s.now = begin.Add(time.Duration(minutes)*time.Minute + 30*time.Second)
		look(t, h, false)
	}
	fired, skipped := s.decisions("a")
	for _, f := range fired {
		is.True(!due[f.Due]) // no due time runs twice
		due[f.Due] = true
	}
	is.Equal([]int{len(fired), len(skipped)}, []int{6, 0}) // at 10, 20, 30, 40, 300 and 310
}

func TestARunWaitsForNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.save("skips", map[string]any{"every": "10m"})
	s.save("queues", map[string]any{"every": "10m", "overlap": "queue"})
	s.now = time.Now().UTC().Add(10*time.Minute + time.Second)
	look(t, s.another(), true)
	fired, skipped := s.decisions("skips")
	is.Equal(len(fired), 0)
	is.Equal(skipped[0].Reason, "The last run was not over.")
	fired, _ = s.decisions("queues")
	is.Equal(len(fired), 1)
}

func TestAScheduleActsOnlyWhereItsAccountMay(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	chats := &chat.Chats{Log: s.log}
	for id, owner := range map[string]string{"own": s.alice, "other": "bob", "gone": s.alice} {
		_, _, err := chats.Create(t.Context(), chat.Create{Chat: id, User: owner})
		is.NoErr(err)
		s.save(id, map[string]any{"every": "10m", "session_mode": "existing", "chat": id})
	}
	_, err := chats.Delete(t.Context(), chat.Delete{Chat: "gone"})
	is.NoErr(err)
	s.now = time.Now().UTC().Add(10*time.Minute + time.Second)
	look(t, s.another(), false)
	for id, want := range map[string]string{"own": "", "other": "belongs to another account", "gone": "was deleted"} {
		fired, skipped := s.decisions(id)
		is.Equal([]int{len(fired), len(skipped)}, map[bool][]int{true: {1, 0}, false: {0, 1}}[want == ""])
		if want != "" {
			is.True(strings.Contains(skipped[0].Reason, want))
			_, err := s.another().Run(t.Context(), Run{Schedule: id, Manual: true})
			is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
		}
	}
	disabled := true
	_, err = s.accounts(s.log).UpdateAccount(t.Context(), account.UpdateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Account: s.alice, Disabled: &disabled})
	is.NoErr(err)
	s.now = s.now.Add(10 * time.Minute)
	look(t, s.another(), false)
	fired, skipped := s.decisions("own")
	is.Equal(len(fired), 1)
	is.True(strings.Contains(skipped[0].Reason, "is disabled"))
}

func TestTheRunsOfAScheduleAreInItsProject(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, err := project.Ensure(t.Context(), s.records, project.Project{ID: "app", Name: "app", Directory: "/app",
		Everyone: project.Member})
	is.NoErr(err)
	s.save("reports", map[string]any{"every": "10m", "project": "app"})
	newest := &chat.Chats{Log: s.log} // without projects it makes a chat in the first one
	_, _, err = newest.Create(t.Context(), chat.Create{Chat: "newest", User: s.alice})
	is.NoErr(err)
	s.now = time.Now().UTC().Add(10*time.Minute + time.Second)
	look(t, s.another(), false)
	fired, _ := s.decisions("reports")
	_, data := handlerstest.History(t, s.log, fired[0].Chat)
	is.Equal(handlerstest.Of[events.ChatCreated](data)[0].ProjectID(), "app")

	_, _, err = s.records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: project.Collection, Record: "app", Set: record.Fields(map[string]any{"everyone": project.Viewer})})
	is.NoErr(err)
	s.now = s.now.Add(10 * time.Minute)
	look(t, s.another(), false)
	_, skipped := s.decisions("reports")
	is.Equal(len(skipped), 1) // and it starts nothing in another project
	is.Equal(skipped[0].Reason, "The account of the schedule may not work in its project.")
}

func TestARunNowIsStartedOnceForACommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.save("a", map[string]any{"every": "10m", "enabled": false})
	var chats []string
	for range 2 {
		r, err := s.another().Run(t.Context(), Run{Command: handlers.Command{ID: "c1", Actor: events.UserActor(s.alice)},
			Schedule: "a", Manual: true})
		is.NoErr(err)
		chats = append(chats, fmt.Sprint(r.Chat, r.Message))
	}
	is.Equal(chats[0], chats[1])
	fired, _ := s.decisions("a")
	is.Equal(len(fired), 1)
	is.True(fired[0].Manual)
	s.now = s.now.Add(24 * time.Hour)
	look(t, s.another(), false) // it is paused
	fired, skipped := s.decisions("a")
	is.Equal([]int{len(fired), len(skipped)}, []int{1, 0})
}
