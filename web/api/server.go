// Package api is the base of PocketCoder's HTTP API: routes, callers, errors, request bodies, slow clients, and the
// routes of the system itself (health, login, setup, notifications).
//
// The packages above it pass their routes as values. Handler serves them and Document describes them.
//
// Promises: a route is public only if its Access allows it. A caller reads a record only if the rules of its collection
// allow it. Every answer that is not a success is PocketBase's error object, with a fitting status and the field at
// fault. No request makes a 500. A request that comes after its deadline has no effect. A slow client is dropped;
// nothing waits for it. Lists and other slow queries of an account run at most two at a time.
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
	"strings"

	"pocketcoder/events/log"
	"pocketcoder/events/log/tail"
	"pocketcoder/handlers/account"
	"pocketcoder/projections"
	"pocketcoder/web/query/schema"
)

// Server has what all routes need to identify a caller, check access and answer.
type Server struct {
	Model     *projections.Model
	Tail      *tail.Tail
	Accounts  *account.Accounts
	Catalogue schema.Catalogue
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

// ErrUnavailable is the error while OpenCode does not answer.
var ErrUnavailable = errors.New("OpenCode is not available")

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
	p := NewDeadlineWriter(w)
	p.reserve = func(n int) (func(), error) { return s.unsent.reserve(caller.Key(), n) }
	w = p
	err := route.Access(caller)
	if err == nil && !route.WhileLoading && s.Loading != nil {
		err = s.Loading()
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
