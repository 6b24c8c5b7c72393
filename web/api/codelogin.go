package api

import (
	"net/http"

	"pocketcoder/events"
)

// ConnectPath is the path of the page where a person confirms a code.
const ConnectPath = "/connect"

// codeLogin is a login that a program has begun.
type codeLogin struct {
	Code    string `json:"code"`
	Secret  string `json:"secret"`  // with which the program gets the token
	Page    string `json:"page"`    // where a person types the code and confirms it; no link has the code
	Expires string `json:"expires"` // 2006-01-02 15:04:05.000Z
}

func (s *Server) beginCodeLogin(w http.ResponseWriter, r *http.Request, caller Caller) error {
	if err := s.Limit(caller.Client.Network()); err != nil {
		return err
	}
	l, err := s.Accounts.BeginCodeLogin(r.Context(), caller.Client)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, codeLogin{l.Code, l.Secret, s.URL + ConnectPath,
		events.FormatTime(l.Expires)})
}

type codeSecret struct {
	Secret string `json:"secret"`
}

type codeToken struct {
	Pending bool   `json:"pending"` // no person has confirmed the code yet
	Token   string `json:"token,omitempty"`
	Email   string `json:"email,omitempty"` // of the account
}

func (s *Server) completeCodeLogin(r *http.Request, caller Caller, body codeSecret) (a codeToken, err error) {
	// this limit is not that of passwords, so that programs that wait do not prevent other logins from their address
	if err := s.Limit("code " + caller.Client.Network()); err != nil {
		return a, err
	}
	token, confirmed, err := s.Accounts.CompleteCodeLogin(r.Context(), r.PathValue("code"), body.Secret, caller.Client)
	return codeToken{!confirmed, token.Text, token.Identity.Email}, err
}

func (s *Server) confirmCodeLogin(w http.ResponseWriter, r *http.Request, caller Caller) error {
	if err := s.ConfirmCode(r, caller, r.PathValue("code")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ConfirmCode lets the program with a code act for the caller, who is a person.
func (s *Server) ConfirmCode(r *http.Request, caller Caller, code string) error {
	if caller.Is("agent") || caller.IsOperator {
		return Forbidden("Only a person with an account may do this.")
	}
	if err := s.Limit(caller.Key()); err != nil {
		return err
	}
	return s.Accounts.ConfirmCodeLogin(r.Context(), caller.Account, code)
}
