// Package web is the HTTP server: it joins the API and the web app, and checks the host and the origin of each request.
//
// Promises: a request for a host name that is not ours is refused, and so is a request from a page of another origin,
// so that no web page elsewhere can reach a server on loopback. Pages run no script but ours, load nothing from
// elsewhere, and no site may frame them. Files of the workspace and servers in the sandbox never run under this origin.
// Each port of the sandbox has a host name, and so an origin, of its own.
//
// It must not know how events are stored, how OpenCode is reached, or what the API's routes do.
package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"pocketcoder/events/log"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/delegate"
	"pocketcoder/handlers/exec"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/export"
	"pocketcoder/web/pages"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/ports"
	"pocketcoder/web/realtime"
	"pocketcoder/web/records"
	"pocketcoder/web/routes"
	"pocketcoder/web/stream"
)

// Options are the parts of the system that the server uses, and its settings.
type Options struct {
	Log      *log.Log
	Conn     *nats.Conn // may read what the streams are, and may call workers
	Pool     string     // of the workers
	Tail     *log.Tail
	Model    *projections.Model
	Chats    *chat.Chats
	Records  *record.Records
	Gate     permission.Gate
	Accounts *account.Accounts
	Engine   routes.Engine
	Push     api.Push
	Signal   func(context.Context, exec.Signal) (uint64, error) // sends a signal to a running command
	// exec.ErrNotServed when nothing serves there
	Dial    func(ctx context.Context, chat string, port int) (net.Conn, error)
	Health  func() api.Health
	Loading func() error // why most of the API cannot be served yet, nil when it can; nil for never
	Logger  *slog.Logger

	Delegates *delegate.Delegates
	Schedules *schedule.Schedules
	Previews  schedule.Previews
	Proposals proposal.Proposals

	ProviderKeys *model.ProviderKeys
	Channels     *channel.Channels
	Secrets      mcpserver.Secrets
	Configured   func() string // the model of the configuration, as provider/model; nil for none
	// Directory returns the absolute directory of a project
	Directory func(ctx context.Context, project string) (string, error)
	// directory below which administrators may choose directories of projects; empty for none
	ProjectsBelow string
	// of the origins of ports, such as http://{port}.localhost:8090; empty for none. See ports.CheckPortsURL
	PortsURL string
	URL      string   // under which people reach the server; empty if only this machine reaches it
	Hosts    []string // names a request may use besides IP addresses of loopback and localhost; for a proxy in front
	Proxied  bool     // a proxy in front names the client in X-Forwarded-For
}

// Server serves the API and the pages. Realtime.Run and the Tail's Run must run while it serves.
type Server struct {
	*site.Site
	Realtime *realtime.Realtime
	Streams  *stream.Streams
	Exports  *export.Exports
	// what the command line and administrators need besides
	Operations *routes.Operations
	hosts      []string
}

// New returns a server with all routes.
func New(o Options) *Server {
	types := recordtype.All(recordtype.Machine{})
	if o.Records != nil {
		types = o.Records.Types()
	}
	collections := records.CollectionsOf(types)
	core := &api.Server{
		Model: o.Model, Tail: o.Tail, Accounts: o.Accounts, Catalogue: collections.Catalogue(), Health: o.Health, Loading: o.Loading, Push: o.Push, URL: strings.TrimSuffix(o.URL, "/"), Proxied: o.Proxied, Logger: o.Logger,
	}
	all := &site.Site{
		API: core, Log: o.Log, Conn: o.Conn, Pool: o.Pool,
		Chats: &routes.Chats{API: core, Chats: o.Chats, Gate: o.Gate, Engine: o.Engine, Signal: o.Signal},
		Records: &records.Records{
			Collections: collections, API: core, Log: o.Log, Chats: o.Chats, Records: o.Records, Gate: o.Gate, ProviderKeys: o.ProviderKeys, Channels: o.Channels,
		},
		Delegates: &routes.Delegates{API: core, Delegates: o.Delegates},
		Schedules: &routes.Schedules{API: core, Schedules: o.Schedules, Previews: o.Previews},
		Agents: &routes.Agents{API: core, Files: agent.Agents{Records: o.Records},
			Notes: agent.Notes{Log: o.Log, Records: o.Records}, Proposals: o.Proposals},
		Channels: &routes.Channels{API: core, Channels: o.Channels},
		Ports:    &ports.Ports{API: core, URL: o.PortsURL, Dial: o.Dial},
		Shells:   &routes.Shells{API: core, Conn: o.Conn},

		ProjectsBelow: o.ProjectsBelow,
	}
	core.Ticket = all.Ports.Ticket
	return &Server{
		Site:     all,
		Realtime: &realtime.Realtime{API: core, Log: o.Log, Opened: o.Engine.Open},
		Streams:  &stream.Streams{API: core, Log: o.Log, Directory: o.Directory},
		Exports:  &export.Exports{API: core, Log: o.Log},
		Operations: &routes.Operations{API: core, Log: o.Log, Conn: o.Conn, Pool: o.Pool, Records: o.Records,
			Gate: o.Gate, Channels: o.Channels, Secrets: o.Secrets, Agents: all.Agents, Configured: o.Configured},
		hosts: o.Hosts,
	}
}

// routes are all routes besides those of api itself.
func (s *Server) routes() []api.Route {
	return slices.Concat(s.Chats.Routes(), s.Delegates.Routes(), s.Schedules.Routes(), s.Channels.Routes(),
		s.Records.Routes(), s.Realtime.Routes(), s.Streams.Routes(),
		s.Exports.Routes(), s.Ports.Routes(), s.Shells.Routes(),
		s.Agents.Routes(), s.Operations.Routes(),
		routes.Search{API: s.API}.Routes())
}

// Routes serves the API alone, without the pages and the checks of origin and host.
func (s *Server) Routes() http.Handler { return s.API.Handler(s.routes()...) }

// Local serves the API to the operator of the machine, who needs no token.
func (s *Server) Local() http.Handler { return api.AsOperator(s.Routes()) }

func (s *Server) Document() api.Document { return s.API.Document(s.routes()...) }

// Handler is every page, and the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	pages.Handle(mux, s.Site, s.Exports, s.Document())
	routes := confined(s.Routes())
	return s.Ports.PortOrigins(s.knownHost(sameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// the mux would answer a path that is not clean with a redirect, as a page
		if strings.HasPrefix(r.URL.Path, "/api/") {
			routes.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))))
}

// knownHost refuses requests under a foreign name (DNS rebinding).
func (s *Server) knownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		if !s.known(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "This server does not go by that name.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) known(hostPort string) bool {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		host, port = strings.Trim(hostPort, "[]"), "80"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback() || slices.Contains(s.hosts, host)
}

// sameOrigin refuses what a page of another origin asks for, reading included: browsers send Origin along, or say
// otherwise that a change comes from another site; other programs do neither. A path with a ticket in it only those
// know who were given it, and the page that is served there has no origin.
func sameOrigin(next http.Handler) http.Handler {
	foreign := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "Requests from another origin are not allowed.")
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(foreign)
	own := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ports.HasTicket(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		for _, origin := range r.Header.Values("Origin") {
			if origin != "http://"+r.Host && origin != "https://"+r.Host {
				foreign(w, r)
				return
			}
		}
		own.ServeHTTP(w, r)
	})
}

// confined keeps a browser that shows an answer of the API, such as a file of the workspace, from running it.
func confined(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// refuse answers with PocketBase's error body.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// a client that went away misses it
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "message": message, "data": map[string]any{}})
}
