package mcp_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/ops/expect"
)

func TestAnAssistantSchedulesForThePersonOfItsChatAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	f.Schedules = &schedule.Schedules{Log: f.log, Chats: f.Chats}
	other, _, err := f.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: "schedules", New: true, Set: handlerstest.Fields(
			`{"name":"other","prompt":"p","session_mode":"new","every":"1h","user":"bob"}`)})
	is.NoErr(err)
	text, failed := f.call("schedule_task", "", map[string]any{"name": "tests", "prompt": "run the tests",
		"cron_expression": "0 3 * * *", "time_zone": "Europe/Berlin", "session_mode": "existing"})
	is.True(!failed)
	var made struct {
		Task string   `json:"task_id"`
		Next []string `json:"next"`
	}
	is.NoErr(json.Unmarshal([]byte(text), &made))
	is.Equal(len(made.Next), 5)
	lines := handlerstest.Records(t, f.log, "schedules")
	expect.Contains(t, lines[1], `"chat":"c1"`)

	text, failed = f.call("schedule_task", "", map[string]any{"name": "never", "prompt": "p",
		"cron_expression": "0 0 30 2 *"})
	is.True(failed)
	expect.Contains(t, text, "there is no such date")
	text, failed = f.call("schedule_task", "", map[string]any{"name": "often", "prompt": "p", "every": "1m"})
	is.True(failed)
	expect.Contains(t, text, "At least 5 minutes")
	text, failed = f.call("schedule_task", "", map[string]any{"name": "bursts", "prompt": "p",
		"cron_expression": "0-3 9 * * *"})
	is.True(failed)
	expect.Contains(t, text, "At least 5 minutes")
	expect.Contains(t, lines[1], `"max_cost":1`)
	list := func() string { text, _ := f.call("list_tasks", "", map[string]any{}); return text }
	expect.Contains(t, list(), made.Task)
	expect.Lacks(t, list(), other)
	for _, tool := range []string{"pause_task", "resume_task", "cancel_task"} {
		text, failed = f.call(tool, "", map[string]any{"task_id": other})
		is.True(failed)
		expect.Contains(t, text, "There is no scheduled task")
		text, failed = f.call(tool, "", map[string]any{"task_id": made.Task})
		is.True(!failed)
		expect.Contains(t, text, made.Task)
	}
	is.Equal(list(), `{"tasks":[]}`)
}

// A run has the agent of the chat that scheduled it, and that chat limits it, also after a person changed the schedule.
func TestTheChatOfAnAssistantIsTheCeilingOfTheTasksThatItSchedules(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	f.Schedules = &schedule.Schedules{Log: f.log, Chats: f.Chats}
	agent := "a1"
	handlerstest.Happened(t, f.log, "c1", handlerstest.Fact{Data: events.ChatUpdated{Agent: &agent}})
	seq, err := f.log.Last(t.Context())
	is.NoErr(err)
	is.NoErr(f.Model.Wait(t.Context(), seq))
	text, failed := f.call("schedule_task", "", map[string]any{"name": "tests", "prompt": "run the tests", "every": "24h"})
	is.True(!failed)
	var made struct {
		Task string `json:"task_id"`
	}
	is.NoErr(json.Unmarshal([]byte(text), &made))
	_, _, err = f.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: "schedules", Record: made.Task, Set: handlerstest.Fields(`{"agent":"","user":""}`)})
	is.NoErr(err)
	run, err := f.Schedules.Run(t.Context(), schedule.Run{Schedule: made.Task, Manual: true,
		Command: handlers.Command{Actor: events.ActorSystem}})
	is.NoErr(err)
	_, data := handlerstest.History(t, f.log, run.Chat)
	created := handlerstest.Of[events.ChatCreated](data)[0]
	is.Equal(*created.Ceiling, events.Ceiling{Chat: "c1", Root: "c1", Agent: "a1"})
	stored, _, err := record.One[schedule.Schedule](t.Context(), f.Records, schedule.Collection, made.Task)
	is.NoErr(err)
	is.Equal(stored.Project, events.DefaultEngine) // that of the chat
}

func TestAssistantsScheduleALimitedNumberOfTasks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	f.Schedules = &schedule.Schedules{Log: f.log, Chats: f.Chats}
	for n := range 49 {
		_, _, err := f.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
			Collection: "schedules", New: true, Set: record.Fields(map[string]any{"name": fmt.Sprint(n), "prompt": "p",
				"session_mode": "new", "every": "1m"})})
		is.NoErr(err)
	}
	var made atomic.Int64
	var all sync.WaitGroup
	for n := range 4 { // at once
		all.Go(func() {
			_, failed := f.call("schedule_task", "", map[string]any{"name": fmt.Sprint("task ", n), "prompt": "p",
				"every": "1h"})
			if !failed {
				made.Add(1)
			}
		})
	}
	all.Wait()
	is.Equal(made.Load(), int64(1))
	is.Equal(len(handlerstest.Records(t, f.log, "schedules")), 50)
}
