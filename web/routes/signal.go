package routes

import (
	"errors"
	"net/http"

	"pocketcoder/handlers"
	"pocketcoder/handlers/exec"
	"pocketcoder/web/api"
)

// signalRequest names the signal: one that ends the command when it names none.
type signalRequest struct {
	Signal string `json:"signal,omitempty"`
}

// signalExecution sends a signal to a running command. Agents may not.
func (s *Chats) signalExecution(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	x, err := s.API.Find(r.Context(), caller, "executions", r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := s.API.PersonMayWrite(r, caller, x.Text("chat")); err != nil {
		return err
	}
	var body signalRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	_, err = s.Signal(r.Context(), exec.Signal{Command: caller.Command(), Execution: x.ID(),
		Signal: body.Signal})
	if refused := (handlers.Refused{}); errors.As(err, &refused) && refused.Code == handlers.Conflict {
		return api.Problem{Status: http.StatusConflict, Message: refused.Text}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
