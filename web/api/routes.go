package api

import (
	"net/http"
	"slices"

	"pocketcoder/handlers/account"
	"pocketcoder/web/openapi"
)

// Route is one operation: the function that serves it, and its description.
type Route struct {
	Method, Path string
	About        string
	Access       func(Caller) error
	WhileLoading bool // served also while the read models are computed
	Query        []openapi.Param
	Body         any                     // a value of the type of the request's body, or an openapi.Form; nil for none
	Answer       any                     // a value of the type of the answer's body; nil for none
	Media        string                  // of the answer, when it is not JSON
	Forms        map[string]openapi.Form // those that Body refers to, by name
	Serve        func(http.ResponseWriter, *http.Request, Caller) error
}

// Anyone admits every caller. The rules of a collection decide which records a caller sees.
func Anyone(Caller) error { return nil }

// Guests admits accounts and callers without a token. It refuses an invalid token, because such a client would wait
// for events that never come.
func Guests(caller Caller) error {
	if caller.invalidToken {
		return Unauthorized()
	}
	return nil
}

func Accounts(caller Caller) error {
	if caller.Identity == nil {
		return Unauthorized()
	}
	return nil
}

// Staff admits administrators and agents.
func Staff(caller Caller) error {
	if err := Accounts(caller); err != nil {
		return err
	}
	if !caller.Is("admin") && !caller.Is("agent") {
		return Forbidden("Only administrators and agents may do this.")
	}
	return nil
}

func Admins(caller Caller) error {
	if err := Accounts(caller); err != nil {
		return err
	}
	if !caller.Is("admin") {
		return Forbidden("Only administrators may do this.")
	}
	return nil
}

// ViewQuery are the parameters of every route that answers with a record.
var ViewQuery = []openapi.Param{{Name: "expand", About: "relations to include"},
	{Name: "fields", About: "fields to answer with"}}

// AnyMethod is the method of a route that accepts every method. The description shows it as a GET.
const AnyMethod = "ANY"

// describe returns the route in the form of package openapi. It calls Access with sample callers to find out which
// roles are admitted.
func (r Route) describe() openapi.Route {
	d := openapi.Route{Method: r.Method, Path: r.Path, About: r.About, Access: openapi.Admin, Query: r.Query,
		Body: r.Body, Answer: r.Answer, Media: r.Media, Forms: r.Forms}
	if r.Method == AnyMethod {
		d.Method = http.MethodGet
	}
	admits := func(role string) bool {
		return r.Access(Caller{Identity: &account.Identity{Collection: account.Users, Role: role}}) == nil
	}
	switch {
	case r.Access(Caller{}) == nil:
		d.Access = openapi.Public
	case admits("user"):
		d.Access = openapi.Account
	case admits("agent"):
		d.Access = openapi.Staff
	}
	return d
}

// Document returns the OpenAPI description of the routes of this package and of the others.
func (s *Server) Document(others ...Route) openapi.Document {
	var all []openapi.Route
	for _, r := range s.routes(others) {
		all = append(all, r.describe())
	}
	return openapi.Describe(s.Catalogue, Problem{}, all)
}

const EventStream = "text/event-stream"

func (s *Server) routes(others []Route) []Route {
	const (
		collection = "/api/collections/{collection}"
		sessions   = "/api/pocketcoder/sessions"
		push       = "/api/pocketcoder/push"
	)
	describe := func(w http.ResponseWriter, _ *http.Request, _ Caller) error {
		return WriteJSON(w, http.StatusOK, s.Document(others...))
	}
	return slices.Concat([]Route{
		{Method: "GET", Path: "/api/health", About: "The state of each part of the system.", Access: Anyone, WhileLoading: true, Answer: healthAnswer{}, Serve: s.health},
		{Method: "GET", Path: "/api/openapi.json", About: "This description.", Access: Anyone, WhileLoading: true, Answer: map[string]any{}, Serve: describe},
		{Method: "GET", Path: collection + "/auth-methods", About: "How an account can log in.", Access: Anyone, WhileLoading: true, Answer: authMethods{}, Serve: s.authMethods},
		{Method: "POST", Path: collection + "/auth-with-password", About: "Log in.", Access: Anyone, Query: ViewQuery, Body: passwordLogin{}, Answer: authAnswer{}, Serve: s.logIn},
		{Method: "POST", Path: collection + "/auth-refresh", About: "Exchange a token for a newer one of the same session.", Access: Accounts, Query: ViewQuery, Answer: authAnswer{}, Serve: s.refresh},
		{Method: "POST", Path: "/api/pocketcoder/setup", About: "Create the first administrator, with the one-time link that a new system shows.", Access: Anyone, Body: setupRequest{}, Answer: authAnswer{}, Serve: s.setUp},
		{Method: "GET", Path: sessions, About: "The sessions of the account.", Access: Accounts, Answer: []session{}, Serve: s.listSessions},
		{Method: "DELETE", Path: sessions + "/{id}", About: "End a session of the account: its token and its open streams.", Access: Accounts, Serve: s.endSession},
		{Method: "GET", Path: push + "/key", About: "The public key with which a browser subscribes to Web Push.", Access: Accounts, Answer: pushKey{}, Serve: s.pushKey},
		{Method: "POST", Path: push, About: "Notify an account on its devices, unless it has turned that off or is viewing the chat.", Access: Accounts, Body: pushRequest{}, Answer: pushAnswer{}, Serve: s.sendPush},
		{Method: "POST", Path: push + "/test", About: "Send a test notification to one device of the account.", Access: Accounts, Body: pushTestRequest{}, Answer: pushAnswer{}, Serve: s.testPush},
		{Method: "POST", Path: "/api/pocketcoder/act/{token}", About: "Carry out the action of a notification's button, once.", Access: Anyone, Query: []openapi.Param{DeadlineParam}, Answer: actAnswer{}, Serve: s.act},
	}, others)
}
