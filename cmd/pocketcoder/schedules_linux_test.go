package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// scheduleRuns are the runs of a schedule, the newest first.
func (p *process) scheduleRuns(t testing.TB, id string) (all []projections.PricedRun) {
	t.Helper()
	all, err := client.List[projections.PricedRun](t.Context(), p.System, "schedule_runs",
		client.Select{Filter: fmt.Sprintf("schedule = %q", id), Sort: "-due,-created,-id"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAScheduleOfTheCommandLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	_, errOut, status := p.cli(t, "", "schedule", "add", "Greeting", "--cron", "0 0 30 2 *", "--prompt", "@@say hi")
	is.Equal(status, 2)
	expect.Contains(t, errOut, "there is no such date")
	out, errOut, status := p.cli(t, "", "schedule", "add", "Greeting", "--every", "24h", "--prompt", "@@say good morning")
	runs, requests, _ := strings.Cut(out, "Requests of the last 30 days, ")
	is.Equal([]any{status, strings.Count(runs, "\n"), requests != ""}, []any{2, 5, true})
	expect.Contains(t, errOut, "nothing is saved")
	out, errOut, status = p.cli(t, "", "schedule", "add", "Greeting", "--every", "24h", "--prompt", "@@say good morning",
		"--yes")
	is.Equal([]any{status, errOut}, []any{0, ""})
	lines := strings.Fields(out)
	id := lines[len(lines)-1]
	out, _, _ = p.cli(t, "", "schedule", "run", id)
	chat := strings.TrimSpace(out)
	is.Equal(p.scheduleRuns(t, id)[0].Chat, chat)
	is.Equal(p.row(t, chat).Preview, "@@say good morning")
	out, _, _ = p.cli(t, "", "schedule", "show", "Greeting")
	for _, want := range []string{chat, "every 24h"} {
		expect.Contains(t, out, want)
	}
	p.cli(t, "", "schedule", "pause", id)
	out, _, _ = p.cli(t, "", "schedule", "list")
	expect.Contains(t, out, "paused")
	_, errOut, status = p.cli(t, "", "schedule", "cancel", id)
	is.Equal([]any{status, errOut}, []any{0, ""})
}

func TestAnAssistantSchedulesATask(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, call("pocketcoder_schedule_task", map[string]any{"name": "Evening", "prompt": "@@say good evening",
		"every": "24h"})+"\n@@next\n"+call("pocketcoder_list_tasks", map[string]any{})+"\n@@next\n@@say planned")
	p.awaitRequestOfPerson(t, chat, 0)
	reason := string(p.event(t, chat, events.PermissionReferred{}.Kind(), nil).Data) // before the schedule is saved
	is.Equal(len(regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d`).FindAllString(reason, -1)), 5)
	expect.Contains(t, reason, "requests in the last 30 days")
	is.Equal(p.approve(t, chat, 0).Permission, "pocketcoder_schedule_task")
	p.turnEnds(t, chat)
	var made struct {
		Task   string `json:"task_id"`
		Status string
		Next   []time.Time
	}
	is.NoErr(json.Unmarshal([]byte(p.outputOf(t, chat, 0)), &made))
	is.Equal([]any{made.Status, len(made.Next)}, []any{"scheduled", 5})
	expect.Contains(t, p.outputOf(t, chat, 1), made.Task)
	out, _, status := p.cli(t, "", "schedule", "run", made.Task)
	is.Equal(status, 0)
	run := strings.TrimSpace(out)
	p.turnEnds(t, run)
	is.Equal(p.row(t, run).Preview, "good evening")

	chat = p.chat(t, call("pocketcoder_cancel_task", map[string]any{"task_id": made.Task})+"\n@@next\n@@say cancelled")
	is.Equal(p.approve(t, chat, 0).Permission, "pocketcoder_cancel_task")
	p.turnEnds(t, chat)
	out, _, _ = p.cli(t, "", "schedule", "list")
	expect.Lacks(t, out, "Evening")
}
