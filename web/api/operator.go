package api

import (
	"context"
	"net/http"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

// AccountHeader names an account in whose name the local operator sends a request. The rules of that account apply.
const AccountHeader = "PocketCoder-As"

type operatorKey struct{}

// AsOperator returns a handler for a connection that only the operator of the machine can open. Its requests need no
// token: no rule restricts the operator.
func AsOperator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), operatorKey{}, true)))
	})
}

// isOperator reports whether a request came over a connection of the operator.
func isOperator(r *http.Request) bool { return r.Context().Value(operatorKey{}) != nil }

// operator returns the caller of a request of the operator, or the account that the request names.
func (s *Server) operator(r *http.Request) Caller {
	identity := &account.Identity{Account: account.OperatorID, Name: account.OperatorID, Role: account.Admin,
		Collection: account.Superusers}
	if id := r.Header.Get(AccountHeader); id != "" {
		found, err := s.Accounts.Find(r.Context(), id)
		if err != nil {
			return Caller{invalidToken: true}
		}
		identity = &account.Identity{Account: found.ID, Email: found.Email, Name: found.Name, Role: found.Role,
			Collection: account.Users}
	}
	identity.Session, identity.Expires = account.OperatorSession, time.Now().Add(24*time.Hour)
	return Caller{Identity: identity, Client: events.Client{Device: "command line"},
		IsOperator: identity.Account == account.OperatorID && identity.Email == ""}
}

// Owner returns the account that owns what the caller creates, empty for the operator.
func (c Caller) Owner() string {
	if c.Identity == nil || c.IsOperator {
		return ""
	}
	return c.Account
}

// ReadHeader is the header with which an account asks for an answer that includes each event that the log holds when
// the request comes. Its value is ReadLatest. Routes that are served while the read models are computed ignore it.
const (
	ReadHeader = "PocketCoder-Read"
	ReadLatest = "latest"
)

// catchUpTime is how long a request waits for the read models. It is shorter than the time for an answer (web.Serve).
const catchUpTime = 10 * time.Second

// catchUp waits until the read models hold each event that the log holds now.
func (s *Server) catchUp(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	err := s.Model.CatchUp(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return behind
	}
	return err
}

// behind refuses a request for the latest state.
var behind = Problem{Status: http.StatusServiceUnavailable, Retry: 2 * time.Second,
	Message: "The read models are behind the log. Try again."}

// Answers returns a Serve that answers with the JSON of a result.
func Answers[R any](of func(*http.Request, Caller) (R, error)) func(http.ResponseWriter, *http.Request, Caller) error {
	return func(w http.ResponseWriter, r *http.Request, caller Caller) error {
		result, err := of(r, caller)
		if err != nil {
			return err
		}
		return WriteJSON(w, http.StatusOK, result)
	}
}

// Takes is Answers for a request with a JSON body.
func Takes[B, R any](of func(*http.Request, Caller, B) (R, error)) func(http.ResponseWriter, *http.Request,
	Caller) error {
	return Answers(func(r *http.Request, caller Caller) (result R, err error) {
		var body B
		if err := DecodeBody(r, &body); err != nil {
			return result, err
		}
		return of(r, caller, body)
	})
}
