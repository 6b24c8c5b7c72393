// Package web is what PocketCoder says over HTTP.
//
// Promises: what is answered is computed from the log, by way of read models and handlers; a request that names another
// host than the one that is served is refused, so that a web page elsewhere cannot reach a server on loopback.
//
// It must not know how events are stored or how OpenCode is spoken to.
package web

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
)

// Server holds what the routes need.
type Server struct {
	Health func() Health
	Hosts  []string // names a request may use besides IP addresses of loopback and localhost; for a proxy in front
}

// Handler is every route.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/health", s.health)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "The requested resource wasn't found.")
	})
	return s.knownHost(http.NewCrossOriginProtection().Handler(mux))
}

// knownHost refuses requests under a foreign name (DNS rebinding).
func (s *Server) knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		ip := net.ParseIP(host)
		if host != "localhost" && (ip == nil || !ip.IsLoopback()) && !slices.Contains(s.Hosts, host) {
			writeError(w, http.StatusMisdirectedRequest, "This server does not go by that name.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// writeError answers with PocketBase's error body.
func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"status": status, "message": message, "data": map[string]any{}})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that went away misses it
}
