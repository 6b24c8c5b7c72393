// Package api is the base of PocketCoder's HTTP API: routes, callers, errors, request bodies, slow clients, and the
// routes of the system itself (health, login, setup, notifications).
//
// The packages above it pass their routes as values. Handler serves them. Document describes them in OpenAPI 3.1
// (https://spec.openapis.org/oas/v3.1.1.html): the forms of bodies follow from Go types, and those of records from
// their collections.
//
// Promises: a route is public only if its Access allows it. A caller reads a record only if the rules of its collection
// allow it. Every answer that is not a success is PocketBase's error object, with a fitting status and the field at
// fault. No request makes a 500. A request that comes after its deadline has no effect. A slow client is dropped;
// nothing waits for it. Lists and other slow queries of an account run at most two at a time. The description
// of the same routes is always the same bytes.
//
// It must not know which collections exist, how events are stored or how OpenCode is reached. It decides nothing:
// handlers do.
package api

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"pocketcoder/events/log"
	"pocketcoder/handlers/account"
	"pocketcoder/projections"
	"pocketcoder/web/query"
)

// Server has what all routes need to identify a caller, check access and answer.
type Server struct {
	Model     *projections.Model
	Tail      *log.Tail
	Accounts  *account.Accounts
	Catalogue query.Catalogue
	Health    func() Health
	Loading   func() error // why most routes cannot be served yet, nil when they can; a nil function for always ready
	Push      Push
	URL       string // under which people reach the server, as the operator set it; empty for none
	// the token that belongs to a ticket in the path; nil if there are no tickets
	Ticket  func(r *http.Request) (token string, found bool)
	Proxied bool // a proxy in front names the client in X-Forwarded-For
	Logger  *slog.Logger

	limits     limits
	querySlots querySlots
	unsent     unsentBytes
}

// Handler serves the routes of this package and the others. It answers 404 to the rest of /api/.
func (s *Server) Handler(others ...Route) http.Handler {
	mux := http.NewServeMux()
	missing := func(w http.ResponseWriter, _ *http.Request) { WriteProblem(w, NotFound()) }
	mux.HandleFunc("/api/", missing)
	for _, r := range s.routes(others) {
		mux.HandleFunc(strings.TrimPrefix(r.Method+" ", AnyMethod+" ")+r.Path,
			func(w http.ResponseWriter, req *http.Request) { s.answer(w, req, r) })
		if above, ok := strings.CutSuffix(r.Path, "/{path...}"); ok && r.Method == AnyMethod {
			mux.HandleFunc(above, missing) // otherwise the mux redirects to the routes below this path
		}
	}
	routed := cleanPaths(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routed.ServeHTTP(NewDeadlineWriter(w), r) })
}

// FilesRoot is the path of the workspace itself; what follows it is a path in there.
const FilesRoot = "/api/pocketcoder/files/"

// cleanPaths answers 404 to paths with empty, "." or ".." parts. The mux would redirect them.
func cleanPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == FilesRoot+"." { // a name for the workspace itself
			r = r.WithContext(r.Context())
			r.URL = &url.URL{Path: FilesRoot, RawQuery: r.URL.RawQuery}
		}
		p := r.URL.EscapedPath()
		if strings.Contains(p, "//") || strings.Contains(p+"/", "/./") || strings.Contains(p+"/", "/../") {
			WriteProblem(w, NotFound())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answer identifies the caller, checks that the route admits the caller, and serves the route.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, route Route) {
	caller := s.caller(r)
	caller.idempotencyKey = r.Header.Get(IdempotencyParam.Name)
	p := NewDeadlineWriter(w)
	p.reserve = func(n int) (func(), error) { return s.unsent.reserve(caller.Key(), n) }
	w = p
	err := route.Access(caller)
	if err == nil && !route.WhileLoading && s.Loading != nil {
		err = s.Loading()
	}
	if err == nil && !route.WhileLoading && caller.Identity != nil && r.Header.Get(ReadHeader) == ReadLatest {
		err = s.catchUp(r.Context())
	}
	if err == nil {
		BoundBody(w, r, caller)
		r, err = WithDeadline(r)
	}
	if err == nil {
		err = route.Serve(w, r, caller)
	}
	if err == nil || r.Context().Err() != nil {
		return
	}
	problem := ProblemOf(err)
	// 502 is an error of a command's own web server. An unavailable log was logged when the outage began, and up shows
	// the progress of the read models.
	known := errors.As(err, new(log.Unavailable)) || errors.As(err, new(projections.Loading))
	if problem.Status >= http.StatusInternalServerError && problem.Status != http.StatusBadGateway && !known {
		s.Logger.Error("serve", "route", route.Method+" "+route.Path, "err", err)
	}
	WriteProblem(w, problem)
}

// AnswerSlowQuery answers with the JSON of what build returns. It reads and encodes while it holds a query slot of the
// caller, so that few answers are built at once. It releases the slot before it writes, so that a slow client does not
// occupy it.
func (s *Server) AnswerSlowQuery(w http.ResponseWriter, r *http.Request, caller Caller,
	build func() (any, error)) error {
	release, err := s.AcquireQuerySlot(r.Context(), caller.Key())
	if err != nil {
		return err
	}
	b, err := func() ([]byte, error) {
		defer release()
		body, err := build()
		if err != nil {
			return nil, err
		}
		return encode(body)
	}()
	if err != nil {
		return err
	}
	return Write(w, http.StatusOK, "application/json", b)
}

// WriteJSON answers with a JSON body that may not be cached.
func WriteJSON(w http.ResponseWriter, status int, body any) error {
	b, err := encode(body)
	if err != nil {
		return err
	}
	return Write(w, status, "application/json", b)
}

// encode returns the JSON of a body. Records encode themselves, which saves a copy.
func encode(body any) ([]byte, error) {
	if record, ok := body.(interface{ AppendJSON([]byte) []byte }); ok {
		return record.AppendJSON(nil), nil
	}
	return json.Marshal(body)
}

// Write answers with a body that may not be cached. It returns a Problem instead if too many bytes wait for the
// account already.
func Write(w http.ResponseWriter, status int, media string, b []byte) error {
	p := NewDeadlineWriter(w)
	release, err := p.begin(len(b))
	if err != nil {
		return err
	}
	defer release()
	p.Header().Set("Content-Type", media)
	p.Header().Set("Cache-Control", "no-store")
	p.WriteHeader(status)
	_, _ = p.Write(b) // the client may have disconnected
	return nil
}

// Route is one operation: the function that serves it, and its description.
type Route struct {
	Method, Path string
	About        string
	Access       func(Caller) error
	WhileLoading bool // served also while the read models are computed
	Query        []Param
	Body         any             // a value of the type of the request's body, or a Form; nil for none
	Answer       any             // a value of the type of the answer's body; nil for none
	Media        string          // of the answer, when it is not JSON
	Forms        map[string]Form // those that Body refers to, by name
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
var ViewQuery = []Param{{Name: "expand", About: "relations to include"},
	{Name: "fields", About: "fields to answer with"}}

// AnyMethod is the method of a route that accepts every method. The description shows it as a GET.
const AnyMethod = "ANY"

// method is the method of the route in the description.
func (r Route) method() string {
	if r.Method == AnyMethod {
		return http.MethodGet
	}
	return r.Method
}

// access says which callers may use the route: it calls Access with some of them.
func (r Route) access() string {
	admits := func(role string) bool {
		return r.Access(Caller{Identity: &account.Identity{Collection: account.Users, Role: role}}) == nil
	}
	switch {
	case r.Access(Caller{}) == nil:
		return accessPublic
	case admits("user"):
		return accessAccount
	case admits("agent"):
		return accessStaff
	}
	return accessAdmin
}

// Document returns the OpenAPI description of the routes of this package and of the others.
func (s *Server) Document(others ...Route) Document { return describe(s.Catalogue, s.routes(others)) }

const EventStream = "text/event-stream"

func (s *Server) routes(others []Route) []Route {
	const (
		collection = "/api/collections/{collection}"
		sessions   = "/api/pocketcoder/sessions"
		sessionsOf = "/api/pocketcoder/users/{id}/sessions"
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
		{Method: "POST", Path: "/api/pocketcoder/logins", About: "Begin the login of a program without a browser. A person confirms the code at the page.", Access: Anyone, Answer: codeLogin{}, Serve: s.beginCodeLogin},
		{Method: "POST", Path: "/api/pocketcoder/logins/{code}/token", About: "The token of a login with a code, once a person has confirmed it; pending before.", Access: Anyone, Body: codeSecret{}, Answer: codeToken{}, Serve: Takes(s.completeCodeLogin)},
		{Method: "POST", Path: "/api/pocketcoder/logins/{code}/confirm", About: "Let the program with a code act for the account.", Access: Accounts, Serve: s.confirmCodeLogin},
		{Method: "GET", Path: sessions, About: "The sessions of the account.", Access: Accounts, Answer: []session{}, Serve: s.listSessions},
		{Method: "DELETE", Path: sessions + "/{id}", About: "End a session of the account: its token and its open streams.", Access: Accounts, Serve: s.endSession},
		{Method: "GET", Path: sessionsOf, About: "The sessions of an account.", Access: Admins, Answer: []session{}, Serve: s.listSessions},
		{Method: "DELETE", Path: sessionsOf, About: "End every session of an account.", Access: Admins, Serve: s.endSessionsOf},
		{Method: "DELETE", Path: sessionsOf + "/{session}", About: "End a session of an account.", Access: Admins, Serve: s.endSessionsOf},
		{Method: "GET", Path: push + "/key", About: "The public key with which a browser subscribes to Web Push.", Access: Accounts, Answer: pushKey{}, Serve: s.pushKey},
		{Method: "POST", Path: push, About: "Notify an account on its devices, unless it has turned that off or is viewing the chat.", Access: Accounts, Body: pushRequest{}, Answer: PushAnswer{}, Serve: s.sendPush},
		{Method: "POST", Path: push + "/test", About: "Send a test notification to one device of the account.", Access: Accounts, Body: pushTestRequest{}, Answer: PushAnswer{}, Serve: s.testPush},
		{Method: "POST", Path: "/api/pocketcoder/act/{token}", About: "Carry out the action of a notification's button, once.", Access: Anyone, Query: []Param{DeadlineParam}, Answer: actAnswer{}, Serve: s.act},
	}, others)
}
