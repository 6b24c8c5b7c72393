// Package schedules serves the pages of schedules: their list, one with its next and last runs, and a form that shows
// what a schedule would do before it is saved.
//
// Promises: a page changes a schedule only as the API does.
//
// It must not know when a schedule is due.
package schedules

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/schedule"
	"pocketcoder/money"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

// Schedules serves the pages.
type Schedules struct{ *site.Site }

// missedRuns and overlappingRuns say what the values of the fields missed and overlap do.
var (
	missedRuns      = map[string]string{"skip": "start none", "once": "start one run for all of them"}
	overlappingRuns = map[string]string{"skip": "skip the next run", "queue": "start the next run anyway"}
)

// Handle adds the pages to a mux.
func (s Schedules) Handle(mux *http.ServeMux) {
	mux.Handle("GET /schedules", s.Page(s.list))
	mux.Handle("POST /schedules", s.Command(s.save))
	mux.Handle("POST /schedules/preview", s.Page(s.preview))
	mux.Handle("GET /schedules/{id}", s.Page(s.one))
	mux.Handle("POST /schedules/{id}/{command}", s.Command(s.command))
}

// maxShown is the number of schedules, and of the runs of one, that a page shows.
const maxShown = 100

func (s Schedules) list(r *http.Request, caller api.Caller) (templ.Component, error) {
	var all []query.Record
	var o options
	err := s.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) (err error) {
		all, err = s.List(r.Context(), db, caller, schedule.Collection, query.Query{Sort: "-created", PerPage: maxShown})
		if err != nil {
			return err
		}
		o, err = s.options(r.Context(), db, caller, "")
		return err
	})
	return listPage(all, o), err
}

type option struct{ value, text string }

// options are the options of the selects of the form.
type options struct{ chats, agents, models, missed, overlap []option }

// options returns the options from which an account can choose. chat is a chat that is among them, if the account sees
// it.
func (s Schedules) options(ctx context.Context, db dbx.Builder, caller api.Caller, chat string) (o options, err error) {
	o.chats, err = s.records(ctx, db, caller, "chats", "title", query.Query{Sort: "-last_active", PerPage: maxShown,
		Filter: `parent = "" && archived = false`})
	if err == nil && chat != "" && !slices.ContainsFunc(o.chats, func(c option) bool { return c.value == chat }) {
		o.chats = append(o.chats, option{chat, chat})
	}
	if err == nil {
		o.agents, err = s.records(ctx, db, caller, "ai_agents", "name", query.Query{Sort: "name", PerPage: maxShown})
	}
	if err != nil {
		return o, err
	}
	models, err := timeline.ModelsOf(ctx, db, "")
	for _, m := range models.All {
		o.models = append(o.models, option{m, m})
	}
	for _, value := range []string{schedule.Skip, schedule.Once} {
		o.missed = append(o.missed, option{value, missedRuns[value]})
	}
	for _, value := range []string{schedule.Skip, schedule.Queue} {
		o.overlap = append(o.overlap, option{value, overlappingRuns[value]})
	}
	return o, err
}

// records returns the records of a collection that an account may list, as options with the text of a field.
func (s Schedules) records(ctx context.Context, db dbx.Builder, caller api.Caller, collection, field string,
	q query.Query) (all []option, err error) {
	found, err := s.List(ctx, db, caller, collection, q)
	for _, r := range found {
		all = append(all, option{r.ID(), cmp.Or(r.Text(field), r.ID())})
	}
	return all, err
}

type view struct {
	record query.Record
	next   []time.Time
	runs   []projections.PricedRun
	agent  string // name of its agent; empty for none
}

// settings returns the labels and values of the settings of the schedule that differ from the default.
func (v view) settings() (all [][2]string) {
	maxCost, _ := v.record.Get("max_cost").(float64)
	if n, ok := v.record.Get("max_cost").(int64); ok {
		maxCost = float64(n)
	}
	cost := ""
	if maxCost > 0 {
		cost = money.Text(maxCost)
	}
	for _, row := range [][2]string{{"Agent of new chats", v.agent}, {"Model of new chats", v.record.Text("model")},
		{"After missed runs", missedRuns[v.record.Text("missed")]},
		{"If the last run is not over", overlappingRuns[v.record.Text("overlap")]}, {"Stop a run at cost, in US$", cost}} {
		if row[1] != "" {
			all = append(all, row)
		}
	}
	return all
}

func (s Schedules) one(r *http.Request, caller api.Caller) (templ.Component, error) {
	id := r.PathValue("id")
	record, err := s.API.Find(r.Context(), caller, schedule.Collection, id)
	if err != nil {
		return nil, err
	}
	v := view{record: record}
	if agent := record.Text("agent"); agent != "" {
		found, err := s.API.Find(r.Context(), caller, "ai_agents", agent)
		if err != nil && api.ProblemOf(err).Status != http.StatusNotFound { // a deleted agent has no name
			return nil, err
		}
		v.agent = cmp.Or(found.Text("name"), agent)
	}
	if v.next, err = s.Schedules.Schedules.Next(r.Context(), id, 5); err != nil {
		return nil, err
	}
	if v.runs, err = s.API.Model.ScheduleRuns(r.Context(), id, maxShown); err != nil {
		return nil, err
	}
	return onePage(v), err
}

// form returns the schedule of a form, and its fields as the API takes them.
func form(r *http.Request) (one schedule.Schedule, fields map[string]any, err error) {
	text := func(name string) string { return strings.TrimSpace(site.Field(r, name)) }
	one = schedule.Schedule{Name: text("name"), Prompt: text("prompt"), Cron: text("cron_expression"),
		Every: text("every"), TimeZone: text("time_zone"), Chat: text("chat"), Agent: text("agent"), Model: text("model"),
		Missed: text("missed"), Overlap: text("overlap"), Mode: schedule.New, Enabled: true}
	if one.Chat != "" {
		one.Mode = schedule.Existing
	}
	if one.At, err = schedule.ParseTime("at", text("at"), one.TimeZone); err != nil {
		return one, nil, err
	}
	if cost := text("max_cost"); cost != "" {
		if one.MaxCost, err = strconv.ParseFloat(cost, 64); err != nil {
			return one, nil, api.BadField("max_cost", "validation_invalid_type", "max_cost: must be a number, not %q",
				api.Truncate(cost, 40))
		}
	}
	fields = map[string]any{"name": one.Name, "prompt": one.Prompt, "cron_expression": one.Cron, "every": one.Every,
		"at": one.At, "time_zone": one.TimeZone, "chat": one.Chat, "session_mode": one.Mode,
		"agent": one.Agent, "model": one.Model, "missed": one.Missed, "overlap": one.Overlap, "enabled": true}
	if one.MaxCost > 0 {
		fields["max_cost"] = one.MaxCost
	}
	return one, fields, nil
}

func (s Schedules) preview(r *http.Request, caller api.Caller) (templ.Component, error) {
	var v schedule.Preview
	one, _, err := form(r)
	if err == nil {
		v, err = s.Schedules.Preview(r, caller, one)
	}
	problem := ""
	if err != nil {
		p := api.ProblemOf(err)
		if p.Status == http.StatusInternalServerError {
			return nil, err
		}
		problem = site.ProblemText(p)
	}
	var o options
	err = s.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) error {
		o, err = s.options(r.Context(), db, caller, one.Chat)
		return err
	})
	return previewPage(o, func(name string) string { return site.Field(r, name) }, v, problem), err
}

func (s Schedules) save(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	_, fields, err := form(r)
	if err != nil {
		return "", err
	}
	id, err := s.Records.Create(r.Context(), caller, schedule.Collection, fields)
	return path(id), err
}

func (s Schedules) command(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	id := r.PathValue("id")
	switch r.PathValue("command") {
	case "pause":
		return path(id), s.Records.Update(r.Context(), caller, schedule.Collection, id, map[string]any{"enabled": false})
	case "resume":
		return path(id), s.Records.Update(r.Context(), caller, schedule.Collection, id, map[string]any{"enabled": true})
	case "delete":
		return "/schedules", s.Records.Delete(r.Context(), caller, schedule.Collection, id)
	case "run":
		run, err := s.Schedules.Run(r, caller, id)
		return site.ChatPath(run.Chat), err
	}
	return "", api.NotFound()
}

func path(id string) string { return "/schedules/" + url.PathEscape(id) }

// dueText returns when a schedule is due, in one line.
func dueText(r query.Record) string {
	switch {
	case r.Text("every") != "":
		return fmt.Sprintf("every %s", r.Text("every"))
	case r.Text("at") != "":
		return fmt.Sprintf("at %s UTC", r.Text("at")[:16])
	}
	return strings.TrimSpace(r.Text("cron_expression") + " " + r.Text("time_zone"))
}

// pastRequests returns the result of a dry run as a sentence.
func pastRequests(h schedule.History) string {
	if h.Requests == 0 {
		return fmt.Sprintf("The account made no permission requests in the last %d days.", h.Days)
	}
	return fmt.Sprintf("The account made %d permission requests in the last %d days. Today's rules would allow "+
		"%d of them, ask about %d and deny %d.", h.Requests, h.Days, h.Allowed, h.Asked, h.Denied)
}
