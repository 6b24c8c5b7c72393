package egress

import (
	"net"
	"net/http"
	"time"

	"pocketcoder/handlers/network"
)

// Instead sends connections to an address to another, past all checks, as if the internet were here.
func (s *Server) Instead(address, to string) { s.redirects[address] = to }

// QuietFor has connections end when nothing has passed only so long; 0 changes nothing.
func (s *Server) QuietFor(d time.Duration) { s.idleTimeout = d }

// RequestsWithin has requests come within d, or their connections end; 0 changes nothing.
func (s *Server) RequestsWithin(d time.Duration) { s.requestTimeout = d }

// AtMost has only so many connections open.
func (s *Server) AtMost(n int) { s.maxOpen = n }

// ServeExecution answers a request whose credentials were found good.
func (s *Server) ServeExecution(w http.ResponseWriter, r *http.Request, x *network.Execution) {
	s.serve(w, r, x)
}

// ForTests makes a proxy that looks names up with a resolver and waits for people only so long.
func (s *Server) ForTests(r *net.Resolver, patience time.Duration) *Server {
	s.redirects, s.resolver, s.decisionTimeout = map[string]string{}, r, patience
	return s
}
