package api

import (
	"net/http"
	"slices"
)

// Route is one operation: what serves it, and what the description says about it.
type Route struct {
	Method, Path string
	About        string
	Admits       func(caller) error
	Query        []Param
	Body         any             // a value of the type of the request's body, or a Form; nil for none
	Answer       any             // a value of the type of the answer's body; nil for none
	Media        string          // of the answer, when it is not JSON
	Forms        map[string]Form // those that Body refers to, by name
	Serve        func(http.ResponseWriter, *http.Request, caller) error
}

// Param is a parameter of the query, or a header.
type Param struct {
	Name, About string
	Integer     bool
	Header      bool
}

// Who may use a route. What of the data they see is for the rules of its collection to say.
func anyone(caller) error { return nil }

// guests may be nobody, but not somebody whose token is not good: they would wait for what never comes.
func guests(who caller) error {
	if who.forged {
		return unauthorized()
	}
	return nil
}

func accounts(who caller) error {
	if who.Identity == nil {
		return unauthorized()
	}
	return nil
}

func staff(who caller) error {
	if err := accounts(who); err != nil {
		return err
	}
	if !who.is("admin") && !who.is("agent") {
		return forbidden("Only administrators and agents may do this.")
	}
	return nil
}

func admins(who caller) error {
	if err := accounts(who); err != nil {
		return err
	}
	if !who.is("admin") {
		return forbidden("Only administrators may do this.")
	}
	return nil
}

// viewQuery are the parameters of every route that answers with a record.
var viewQuery = []Param{{Name: "expand", About: "relations to include"}, {Name: "fields", About: "fields to answer with"}}

// AnyMethod is the method of a route that takes all of them; it is described as a GET.
const AnyMethod = "ANY"

func (r Route) described() string {
	if r.Method == AnyMethod {
		return http.MethodGet
	}
	return r.Method
}

const eventStream = "text/event-stream"

// routes are those of this package, and the others.
func (s *Server) routes(others []Route) []Route {
	const (
		collection = "/api/collections/{collection}"
		sessions   = "/api/pocketcoder/sessions"
	)
	describe := func(w http.ResponseWriter, _ *http.Request, _ caller) error {
		return writeJSON(w, http.StatusOK, s.Document(others...))
	}
	return slices.Concat([]Route{
		{Method: "GET", Path: "/api/health", About: "How the parts of the system are.", Admits: anyone, Answer: healthAnswer{}, Serve: s.health},
		{Method: "GET", Path: "/api/openapi.json", About: "This description.", Admits: anyone, Answer: map[string]any{}, Serve: describe},
		{Method: "GET", Path: collection + "/auth-methods", About: "How an account can log in.", Admits: anyone, Answer: authMethods{}, Serve: s.authMethods},
		{Method: "POST", Path: collection + "/auth-with-password", About: "Log in.", Admits: anyone, Query: viewQuery, Body: passwordLogin{}, Answer: authAnswer{}, Serve: s.logIn},
		{Method: "POST", Path: collection + "/auth-refresh", About: "Exchange a token for a newer one of the same session.", Admits: accounts, Query: viewQuery, Answer: authAnswer{}, Serve: s.refresh},
		{Method: "POST", Path: "/api/pocketcoder/setup", About: "Make the first administrator, with the one-time link that a new system shows.", Admits: anyone, Body: setupRequest{}, Answer: authAnswer{}, Serve: s.setUp},
		{Method: "GET", Path: sessions, About: "The sessions of the account.", Admits: accounts, Answer: []session{}, Serve: s.listSessions},
		{Method: "DELETE", Path: sessions + "/{id}", About: "End a session of the account: its token and its open streams.", Admits: accounts, Serve: s.endSession},
	}, others)
}
