package api

import (
	"net/http"

	"pocketcoder/handlers/account"
)

// State is how a part of the system is, in the words clients know.
type State string

// The states of a part.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Degraded State = "degraded" // it works, and something wants attention
	Offline  State = "offline"
)

// Part is one part's state, with what it can say for itself.
type Part struct {
	State  State `json:"state"`
	Detail any   `json:"detail,omitempty"`
}

// Health is the state of every part, by name.
type Health map[string]Part

// Ready says whether every part works.
func (h Health) Ready() bool {
	for _, p := range h {
		if p.State != Ready && p.State != Degraded {
			return false
		}
	}
	return true
}

// outside is what anybody may know.
func (h Health) outside() Health {
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

// health answers 200 once every part is ready and 503 before, with the same body. Details are for administrators: they say
// what runs where.
func (s *Server) health(w http.ResponseWriter, _ *http.Request, who Caller) error {
	a := healthAnswer{http.StatusOK, "API is healthy.", s.Health()}
	if !who.Is(account.Admin) {
		a.Data = a.Data.outside()
	}
	if !a.Data.Ready() {
		a.Code, a.Message = http.StatusServiceUnavailable, "Not every part is ready."
	}
	return WriteJSON(w, a.Code, a)
}
