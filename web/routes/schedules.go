package routes

import (
	"net/http"
	"time"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/schedule"
	"pocketcoder/web/api"
)

// Schedules serves the routes of schedules besides the records API: a preview before a schedule is saved, its next
// runs, and a run now. Only accounts that may see a schedule may run it. A preview counts only requests of the caller's
// own chats, unless the caller is an administrator.
type Schedules struct {
	API       *api.Server
	Schedules *schedule.Schedules
	Previews  schedule.Previews
}

// started is a run that a person started.
type started struct {
	Chat    string `json:"chat"`
	Message string `json:"message"`
}

type nextRuns struct {
	Next []time.Time `json:"next"` // in the time zone of the schedule
}

func (s *Schedules) Routes() []api.Route {
	return []api.Route{
		{Method: "POST", Path: "/api/schedules/preview", About: "What a schedule would do if it were saved: its next runs, and which permission requests of the last 30 days the rules would ask about or deny now.", Access: api.Accounts, Body: schedule.Schedule{}, Answer: schedule.Preview{}, Serve: s.preview},
		{Method: "GET", Path: "/api/schedules/{id}/next", About: "The next five runs of a schedule; none while it is disabled.", Access: api.Accounts, Answer: nextRuns{}, Serve: s.next},
		{Method: "POST", Path: "/api/schedules/{id}/run", About: "Start a run of a schedule now. It changes nothing about the next due time.", Access: api.Accounts, Query: once, Answer: started{}, Serve: s.run},
	}
}

func (s *Schedules) preview(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body schedule.Schedule
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	v, err := s.Preview(r, caller, body)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, v)
}

// Preview returns the preview of a schedule that the caller may save.
func (s *Schedules) Preview(r *http.Request, caller api.Caller, of schedule.Schedule) (v schedule.Preview, err error) {
	of.Ceiling = nil // a person's schedule has none
	if of.User == "" || !caller.Is(account.Admin) {
		of.User = caller.Account
	}
	if of.Chat != "" {
		if err := s.API.MayWrite(r, caller, of.Chat); err != nil {
			return v, err
		}
	}
	if of.Mode == schedule.New { // as it would be saved; an account may not try rules of a project that it does not see
		user := of.User
		if user == caller.Account {
			user = caller.Owner()
		}
		in, err := s.Schedules.Chats.ChooseProject(r.Context(), user, of.Project)
		if err != nil {
			return v, err
		}
		of.Project = in.ID
	}
	return s.Previews.Of(r.Context(), of)
}

// maxNext is the number of next runs of an answer.
const maxNext = 5

func (s *Schedules) next(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	if err := s.API.MayView(r.Context(), caller, schedule.Collection, r.PathValue("id")); err != nil {
		return err
	}
	all, err := s.Schedules.Next(r.Context(), r.PathValue("id"), maxNext)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, nextRuns{append([]time.Time{}, all...)})
}

func (s *Schedules) run(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	run, err := s.Run(r, caller, r.PathValue("id"))
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, started{run.Chat, run.Message})
}

// Run starts a run of a schedule that the caller may see, and returns once the read models hold it.
func (s *Schedules) Run(r *http.Request, caller api.Caller, id string) (run schedule.Started, err error) {
	if err := s.API.MayView(r.Context(), caller, schedule.Collection, id); err != nil {
		return run, err
	}
	run, err = s.Schedules.Run(r.Context(), schedule.Run{Command: caller.Command(), Schedule: id,
		Manual: true})
	if err != nil {
		return run, err
	}
	return run, s.API.Model.Wait(r.Context(), run.Seq)
}
