// Package api is PocketCoder over HTTP for programs: the records API and realtime as PocketBase's clients speak them
// (PocketBase 0.23 and later, https://pocketbase.io/docs), event streams that resume, and the system's own routes.
//
// Promises: routes.go holds every route, and the OpenAPI description is made from it. What is read comes from one snapshot
// of the read models, narrowed by the rules in collections.go: a person sees their own chats and what hangs on them. What is
// written is a command; its answer is the record once the read models hold its event. Every answer that is not a success is
// PocketBase's error object with a status that fits, the field named; nothing that a client sends makes a 500. Nothing is
// public but the health check, the description and the ways to log in. A slow client is dropped, never waited for.
//
// It must not know how events are stored or how OpenCode is spoken to, and it decides nothing: handlers do.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/projections"
)

// Server holds what the routes need. Run must run while it serves.
type Server struct {
	Log       *log.Log
	Tail      *log.Tail
	Model     *projections.Model
	Handlers  *handlers.Handlers
	Gate      handlers.Gate
	Accounts  *account.Accounts
	Secrets   *secret.Store
	Engine    Engine
	Sandbox   Sandbox
	Push      Push
	Workspace string // the directory whose files are served, absolute
	Data      string // the data directory, absolute; empty when there is none
	Health    func() Health
	Proxied   bool   // a proxy in front names the client in X-Forwarded-For
	PortsURL  string // of the origins of ports, such as http://{port}.localhost:8090; empty for none. See CheckPortsURL
	Logger    *slog.Logger

	limits   limits
	shares   shares
	realtime realtime
	tickets  tickets
	origins  origins

	// Changes of models' keys take turns: the record and the values are two writes, and two changes of one record must not
	// leave the names of one with the values of the other.
	llmKeys sync.Mutex
}

// ErrUnavailable says that OpenCode does not answer just now.
var ErrUnavailable = errors.New("OpenCode is not available")

// Engine is what only OpenCode can say about a chat: JSON, as it says it. Its errors are ErrUnavailable, or somebody's fault.
type Engine struct {
	Diff func(ctx context.Context, chat, message string) (json.RawMessage, error)
	Todo func(ctx context.Context, chat string) (json.RawMessage, error)
}

// Sandbox is what can be had of the commands that run now.
type Sandbox struct {
	Signal func(context.Context, handlers.SignalExecution) (uint64, error)
	Dial   func(ctx context.Context, chat string, port int) (net.Conn, error) // handlers.ErrNotServed when nothing serves there
}

// Handler is every route of routes.go, and a 404 for the rest of /api/.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.HandleFunc(strings.TrimPrefix(r.method+" ", anyMethod+" ")+r.path, func(w http.ResponseWriter, req *http.Request) { s.answer(w, req, r) })
	}
	mux.HandleFunc(portOfChat, func(w http.ResponseWriter, _ *http.Request) { writeProblem(w, notFound()) }) // else the mux redirects to what is below
	mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) { writeProblem(w, notFound()) })
	routed := cleanPaths(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routed.ServeHTTP(newPatientWriter(w), r) })
}

// cleanPaths refuses paths that lead nowhere or upwards or have empty parts, which the mux would answer with a redirect to somewhere else.
func cleanPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == filesRoot+"." { // a name for the workspace itself
			r = r.WithContext(r.Context())
			r.URL = &url.URL{Path: filesRoot, RawQuery: r.URL.RawQuery}
		}
		p := r.URL.EscapedPath()
		if strings.Contains(p, "//") || strings.Contains(p+"/", "/./") || strings.Contains(p+"/", "/../") {
			writeProblem(w, notFound())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answer finds out who asks, keeps out who may not, and serves the route.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, route route) {
	who := s.caller(r)
	err := route.admits(who)
	if err == nil {
		boundBody(w, r, who)
		err = route.serve(w, r, who)
	}
	if err == nil || r.Context().Err() != nil {
		return
	}
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError && p.Status != http.StatusBadGateway { // that is a fault of what a command serves
		s.Logger.Error("serve", "route", route.method+" "+route.path, "err", err)
	}
	writeProblem(w, p)
}

// writeJSON answers with a body; nobody keeps a copy of it. Records write themselves, which spares copying them twice.
func writeJSON(w http.ResponseWriter, status int, body any) error {
	var b []byte
	if record, ok := body.(interface{ AppendJSON([]byte) []byte }); ok {
		b = record.AppendJSON(nil)
	} else {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that went away misses it
	return nil
}
