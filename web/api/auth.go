package api

import (
	"cmp"
	"net/http"

	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
)

// authMethods are the ways to log in to a collection of accounts.
type authMethods struct {
	Password struct {
		Enabled        bool     `json:"enabled"`
		IdentityFields []string `json:"identityFields"`
	} `json:"password"`
	OAuth2 struct {
		Enabled   bool  `json:"enabled"`
		Providers []any `json:"providers"`
	} `json:"oauth2"`
	MFA disabledMethod `json:"mfa"`
	OTP disabledMethod `json:"otp"`
}

type disabledMethod struct {
	Enabled  bool  `json:"enabled"`
	Duration int64 `json:"duration"` // seconds
}

type passwordLogin struct {
	Identity      string `json:"identity"` // email
	Password      string `json:"password"`
	IdentityField string `json:"identityField,omitempty"`
}

// authAnswer is a token and the record of its account.
type authAnswer struct {
	Token  string `json:"token"`
	Record any    `json:"record"`
}

// setupRequest creates the first administrator. Token is the fragment of the one-time link.
type setupRequest struct {
	Token    string `json:"token"`
	Email    string `json:"email"`
	Name     string `json:"name,omitempty"`
	Password string `json:"password"`
}

// session is a login that has not ended. Its id is public: it is not a token.
type session struct {
	account.Session
	Current bool `json:"current"` // the session that sent the request
}

// authCollection returns the collection of accounts that a path names: users or _superusers.
func authCollection(r *http.Request) (string, error) {
	name := r.PathValue("collection")
	if name != account.Users && name != account.Superusers {
		return "", Problem{Status: http.StatusNotFound, Message: "Missing or invalid auth collection context."}
	}
	return name, nil
}

func (s *Server) authMethods(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if _, err := authCollection(r); err != nil {
		return err
	}
	m := authMethods{}
	m.Password.Enabled, m.Password.IdentityFields, m.OAuth2.Providers = true, []string{"email"}, []any{}
	return WriteJSON(w, http.StatusOK, m)
}

func (s *Server) logIn(w http.ResponseWriter, r *http.Request, caller Caller) error {
	collection, err := authCollection(r)
	if err != nil {
		return err
	}
	if err := s.Limit(caller.Client.Network()); err != nil {
		return err
	}
	var body passwordLogin
	if err := DecodeBody(r, &body); err != nil {
		return err
	}
	switch {
	case body.Identity == "":
		return BadField("identity", "validation_required", "Cannot be blank.")
	case body.Password == "":
		return BadField("password", "validation_required", "Cannot be blank.")
	case body.IdentityField != "" && body.IdentityField != "email":
		return BadField("identityField", "validation_in_invalid", "Must be email.")
	}
	token, err := s.Accounts.Login(r.Context(), account.Login{Identity: body.Identity, Password: body.Password,
		Collection: collection, Client: caller.Client})
	if err != nil {
		return err
	}
	return s.answerToken(w, r, token)
}

func (s *Server) refresh(w http.ResponseWriter, r *http.Request, caller Caller) error {
	collection, err := authCollection(r)
	if err != nil {
		return err
	}
	if collection != caller.Collection {
		return Forbidden("The authorized record is not of this collection.")
	}
	if err := s.Limit(caller.Client.Network()); err != nil {
		return err
	}
	token, err := s.Accounts.Refresh(r.Context(), *caller.Identity, caller.Client)
	if err != nil {
		return err
	}
	return s.answerToken(w, r, token)
}

func (s *Server) setUp(w http.ResponseWriter, r *http.Request, caller Caller) error {
	if err := s.Limit(caller.Client.Network()); err != nil {
		return err
	}
	var body setupRequest
	if err := DecodeBody(r, &body); err != nil {
		return err
	}
	token, err := s.Accounts.CompleteSetup(r.Context(), account.CompleteSetup{
		Token: body.Token, Email: body.Email, Name: body.Name, Password: body.Password, Client: caller.Client,
	})
	if err != nil {
		return err
	}
	return s.answerToken(w, r, token)
}

// answerToken answers with a token and the record of its account, as that account sees it.
func (s *Server) answerToken(w http.ResponseWriter, r *http.Request, token account.Token) error {
	if err := s.Model.Wait(r.Context(), token.Seq); err != nil {
		return err
	}
	c, _ := s.Catalogue.Get(account.Users)
	c.Name = token.Identity.Collection // a login at _superusers gets a record of that collection
	record, err := s.View(r, Caller{Identity: &token.Identity}, c, token.Identity.Account)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, authAnswer{token.Text, record})
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request, caller Caller) error {
	all, err := s.Accounts.Sessions(r.Context(), cmp.Or(r.PathValue("id"), caller.Account))
	if err != nil {
		return err
	}
	shown := []session{}
	for _, one := range all {
		shown = append(shown, session{one, one.ID == caller.Session})
	}
	return WriteJSON(w, http.StatusOK, shown)
}

func (s *Server) endSession(w http.ResponseWriter, r *http.Request, caller Caller) error {
	return s.end(w, r, caller, account.RevokeSession{Account: caller.Account, Session: r.PathValue("id")})
}

// endSessionsOf ends a session of an account, or all of them.
func (s *Server) endSessionsOf(w http.ResponseWriter, r *http.Request, caller Caller) error {
	return s.end(w, r, caller, account.RevokeSession{Account: r.PathValue("id"), Session: r.PathValue("session")})
}

func (s *Server) end(w http.ResponseWriter, r *http.Request, caller Caller, c account.RevokeSession) error {
	c.Command = handlers.Command{Actor: caller.Actor()}
	if err := s.Accounts.Revoke(r.Context(), c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
