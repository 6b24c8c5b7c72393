package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/proposal"
	"pocketcoder/web/api"
)

// Roles are the parts of the system that a node runs. Each node has the read models. Nil is the whole system, without
// a lease.
type Roles []string

// The roles.
const (
	// OpenCode, what carries out effects and reacts to events, a sandbox worker; on the node with the lease
	RoleEngine = "engine"
	RoleWeb    = "web" // the API over TCP, realtime and the pages
)

var allRoles = Roles{RoleEngine, RoleWeb}

// roleHandlers is a role of earlier versions. Every node serves the command line on its machine now.
const roleHandlers = "handlers"

// ParseRoles parses a comma-separated list of roles.
func ParseRoles(list string) (Roles, error) {
	roles := Roles{}
	for role := range strings.SplitSeq(list, ",") {
		if role == roleHandlers {
			continue
		}
		if !slices.Contains(allRoles, role) {
			return nil, fmt.Errorf("%q is not a role; want some of %s, with commas between them", role,
				strings.Join(allRoles, ","))
		}
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	return roles, nil
}

func (r Roles) has(role string) bool { return r == nil || slices.Contains(r, role) }

func (o Options) checkRoles() error {
	if o.Roles != nil && o.NATS == "" {
		return errors.New("--nats: name the NATS servers that the nodes share, such as nats://nats1:4222,nats://nats2:4222")
	}
	return nil
}

// openLease opens the lease of the engine. A system without Options.Roles owns its data alone. It needs no lease and
// leads at once.
func (s *System) openLease(ctx context.Context) (err error) {
	if s.o.Roles == nil {
		return s.lead()
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this node: %w", err)
	}
	// The name is new at each start, because the work of the earlier process has ended.
	s.node = host + "-" + strings.ToLower(rand.Text()[:6])
	s.lease, err = openEngineLease(ctx, s.nc, streamOptions(s.o).Replicas, chat.DefaultEngine, s.node, s.change,
		s.endAtOnce)
	return err
}

// endAtOnce ends this process because its lease has expired. OpenCode and the worker die with it; the log shows what
// they began.
func (s *System) endAtOnce(err error) {
	time.AfterFunc(100*time.Millisecond, func() { os.Exit(1) }) // even if writing the log line blocks
	s.o.Logger.Error("this node ends at once, because another one may run the engine; start it again", "err", err)
	os.Exit(1)
}

// lead starts the actors of the engines.
func (s *System) lead() error {
	close(s.leading)
	return nil
}

// leads reports whether this node runs the engine.
func (s *System) leads() bool {
	select {
	case <-s.leading:
		return true
	default:
		return false
	}
}

// keepLease takes and renews the lease. A node without the role engine only follows it.
func (s *System) keepLease(ctx context.Context) error {
	if !s.o.Roles.has(RoleEngine) {
		return s.lease.Follow(ctx)
	}
	return s.lease.Run(ctx, func() error {
		s.progress.Done("lease", "this node runs the engine: %s", s.node)
		return s.lead()
	})
}

// once returns a function that waits for a channel to close and then calls run.
func once(begun <-chan struct{}, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-begun:
			return run(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answerPause is how long a loop waits before it tries a log again that did not answer.
const answerPause = time.Second

// again returns a function that begins run again while the log does not answer. The health of the log says so
// meanwhile. A cluster that has lost its majority gets it back without a restart of the nodes.
func again(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			err := run(ctx)
			if !log.IsUnavailable(err) {
				return err
			}
			if err := sleep.For(ctx, answerPause); err != nil {
				return err
			}
		}
	}
}

// leaseHealth returns the state of the lease. It is degraded while no node has it, because chats are still served.
func (s *System) leaseHealth() api.Part {
	holder, held := s.lease.Holder()
	part := api.Part{State: either(holder.Node == "", api.Starting, either(held, api.Ready, api.Degraded))}
	part.Detail = map[string]any{"node": s.node, "roles": s.o.Roles, "engine": chat.DefaultEngine, "holder": holder.Node,
		"since": holder.Since, "held": held, "own": s.leads()}
	return part
}

// session returns an OpenCode session, from ingest or else from the read model.
func (s *System) session(id string) (permission.Session, bool) {
	for _, e := range s.engines.Running() {
		if found, ok := e.ingest.Session(id); ok {
			return found, true
		}
	}
	row, ok, err := s.model.Session(context.Background(), id)
	if err != nil {
		s.o.Logger.Error("look up session", "err", err)
	}
	return permission.Session{Chat: row.Chat, Directory: row.Directory}, ok && !row.Removed
}

func (s *System) proposals() proposal.Proposals {
	return proposal.Proposals{Records: s.records, Files: s.skillFiles}
}

// handler returns the HTTP handler. A node without the role web serves only its health.
func (s *System) handler() http.Handler {
	if s.o.Roles.has(RoleWeb) {
		return s.web.Handler()
	}
	mux := http.NewServeMux()
	mux.Handle("GET /api/health", s.web.Handler())
	return mux
}
