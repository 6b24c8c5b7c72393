package settings

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

// Limits of what the page of a schedule shows.
const (
	maxRuns = 100
	maxNext = 5
)

// scheduleView is what a schedule does.
type scheduleView struct {
	next    []time.Time
	runs    []projections.PricedRun // nil for a draft
	history *schedule.History       // what the rules would have decided about past requests; of a draft
	problem string                  // why a draft cannot be saved
}

func (s Settings) scheduleOf(ctx context.Context, id string) (*scheduleView, error) {
	var v scheduleView
	var err error
	if v.next, err = s.Schedules.Schedules.Next(ctx, id, maxNext); err != nil {
		return nil, err
	}
	v.runs, err = s.API.Model.ScheduleRuns(ctx, id, maxRuns)
	return &v, err
}

// previewSchedule shows what a schedule would do, and the form with what a person wrote.
func (s Settings) previewSchedule(r *http.Request, caller api.Caller) (templ.Component, error) {
	v, err := s.read(r, caller)
	if err != nil {
		return nil, err
	}
	v.draft, v.schedule = func(field string) string { return site.Field(r, field) }, &scheduleView{}
	preview, err := s.preview(r, caller)
	if problem := api.ProblemOf(err); err != nil && problem.Status == http.StatusInternalServerError {
		return nil, err
	} else if err != nil {
		v.schedule.problem = site.ProblemText(problem)
	} else {
		v.schedule.next, v.schedule.history = preview.Next, &preview.History
	}
	return recordsPage(caller, v), nil
}

func (s Settings) preview(r *http.Request, caller api.Caller) (v schedule.Preview, err error) {
	fields, err := s.fieldsIn(r, schedule.Collection, func(record.Field) string { return "" })
	if err != nil {
		return v, err
	}
	var draft schedule.Schedule
	if err := json.Unmarshal(api.MustJSON(fields), &draft); err != nil {
		return v, err
	}
	return s.Schedules.Preview(r, caller, draft)
}

func (s Settings) runSchedule(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	run, err := s.Schedules.Run(r, caller, r.PathValue("id"))
	return site.ChatPath(run.Chat), err
}

// scheduleState says when a schedule is due, and how its last run ended.
func scheduleState(r query.Record) string {
	due := strings.TrimSpace(r.Text("cron_expression") + " " + r.Text("time_zone"))
	if every := r.Text("every"); every != "" {
		due = "every " + every
	} else if at := r.Text("at"); at != "" {
		due = "at " + at[:16] + " UTC"
	}
	state := []string{due}
	if !r.IsTrue("enabled") {
		state = append(state, "paused")
	}
	if last := r.Text("last_status"); last != "" {
		state = append(state, last)
	}
	return strings.Join(state, ", ")
}

// pastRequests returns the result of a dry run as a sentence.
func pastRequests(h schedule.History) string {
	if h.Requests == 0 {
		return fmt.Sprintf("The account made no permission requests in the last %d days.", h.Days)
	}
	return fmt.Sprintf("The account made %d permission requests in the last %d days. Today's rules would allow "+
		"%d of them, ask about %d and deny %d.", h.Requests, h.Days, h.Allowed, h.Asked, h.Denied)
}
