package web

import "net/http"

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

// health answers 200 once every part is ready and 503 before, with the same body.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	h, status, message := s.Health(), http.StatusOK, "API is healthy."
	if !h.Ready() {
		status, message = http.StatusServiceUnavailable, "Not every part is ready."
	}
	writeJSON(w, status, map[string]any{"code": status, "message": message, "data": h})
}
