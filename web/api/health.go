package api

import (
	"net/http"

	"pocketcoder/handlers/account"
)

// State is the state of a part of the system, in the words of the API.
type State string

const (
	Starting State = "starting"
	Ready    State = "ready"
	Degraded State = "degraded" // it works, but needs attention
	Offline  State = "offline"
)

// Part is the state of one part of the system, with details for administrators.
type Part struct {
	State  State `json:"state"`
	Detail any   `json:"detail,omitempty"`
}

// Health is the state of every part, by name.
type Health map[string]Part

// Ready reports whether every part works.
func (h Health) Ready() bool {
	for _, p := range h {
		if p.State != Ready && p.State != Degraded {
			return false
		}
	}
	return true
}

// withoutDetails returns the states without details, for callers who are not administrators.
func (h Health) withoutDetails() Health {
	states := Health{}
	for name, part := range h {
		states[name] = Part{State: part.State}
	}
	return states
}

// healthAnswer is the health in PocketBase's form.
type healthAnswer struct {
	Code    int    `json:"code"` // the status again
	Message string `json:"message"`
	Data    Health `json:"data"`
}

// health answers 200 if every part is ready, otherwise 503 with the same body. Only administrators see the details.
func (s *Server) health(w http.ResponseWriter, _ *http.Request, caller Caller) error {
	a := healthAnswer{http.StatusOK, "API is healthy.", s.Health()}
	if !caller.Is(account.Admin) {
		a.Data = a.Data.withoutDetails()
	}
	if !a.Data.Ready() {
		a.Code, a.Message = http.StatusServiceUnavailable, "Not every part is ready."
	}
	return WriteJSON(w, a.Code, a)
}
