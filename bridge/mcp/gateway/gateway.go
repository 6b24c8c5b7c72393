// Package gateway connects to the MCP servers that administrators approved, and calls their tools.
//
// A server with a command runs in the sandbox, like a command of the model: isolated and limited. It has no network, or
// reaches its approved hosts through the egress proxy. A server with a URL is reached through the egress proxy, which
// admits its approved address only.
//
// Promises:
//   - Only an approved server runs. Its tools are offered once they are pinned. If a tool changes, the server ends, and
//     a person has to approve it again. A server whose tools are refused ends too. It is started again later.
//   - Every call is recorded before it is sent, and its result before it is returned.
//   - A message of a server with more than maxAnswer bytes ends its session, whatever the transport. So do more bytes
//     while a person answers its question.
//   - A question of a server reaches only the person of the chat that calls it.
//   - Values of the environment come from the secrets. They are not in the command, and they are redacted in events.
//
// The package must not know OpenCode, or what a permission request is.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/record"
)

// Gateway runs the approved MCP servers. Set the fields before Run. It is safe for concurrent use.
type Gateway struct {
	Engine    string
	Log       *log.Log
	Records   *record.Records
	Secrets   mcpserver.Secrets
	Conn      *nats.Conn
	Pool      string
	Programs  mcpserver.Programs
	Workspace string // where commands run
	// Elsewhere says that the programs of servers are pinned in another workspace. A server whose command names files
	// does not run here, because no person has approved the files that it would find here.
	Elsewhere bool
	Hosts     *network.Servers // decides about the hosts of servers
	Proxy     string           // host:port of the egress proxy, for remote servers
	Offer     func([]Tool)     // receives all tools that are offered, after each change
	// Elicit asks a person what a server wants to know, and may return a sentence for the model
	Elicit func(context.Context, Elicitation) (result *mcp.ElicitResult, notice string, err error)
	Logger *slog.Logger

	mu      sync.Mutex
	running map[string]*connection // by record
}

// Tool is a tool that is offered to the model.
type Tool struct {
	Name string // under which it is offered
	mcpserver.Tool
}

// connection is a server that runs, or is started again and again.
type connection struct {
	mcpserver.Stored
	end   context.CancelFunc
	ended chan struct{}
	queue queue

	// of the gateway's mu
	session *mcp.ClientSession        // nil while it does not run
	offered map[string]mcpserver.Tool // by the name under which it is offered
	calls   []*runningCall
}

// Run keeps the approved servers running until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer g.endAll()
	defer cancel()
	after, err := g.Log.Last(ctx)
	if err != nil {
		return err
	}
	secrets := make(chan error, 1)
	go func() { secrets <- g.followSecrets(ctx); cancel() }()
	err = g.Log.Read(ctx, after, []string{events.ConfigSubject(mcpserver.Collection, "*", "*")},
		func(log.Batch) error { return g.update(ctx) })
	cancel()
	if failed := <-secrets; failed != nil && err == nil {
		err = failed
	}
	return err
}

// followSecrets starts a server again when a value of its environment has changed.
func (g *Gateway) followSecrets(ctx context.Context) error {
	known := false
	return g.Records.Secrets.Watch(ctx, mcpserver.SecretPrefix, func(key string, _ []byte) error {
		if known = known || key == ""; !known || key == "" {
			return nil
		}
		g.mu.Lock()
		c := g.running[strings.TrimPrefix(key, mcpserver.SecretPrefix+".")]
		g.mu.Unlock()
		if c != nil {
			g.stop(c)
		}
		return g.update(ctx)
	})
}

// update starts the servers that were approved, and ends the others. It deletes the secrets of deleted servers.
func (g *Gateway) update(ctx context.Context) error {
	if err := g.Records.Clean(ctx, mcpserver.Collection); err != nil {
		return err
	}
	all, err := mcpserver.All(ctx, g.Records)
	if err != nil {
		return err
	}
	approved := map[string]mcpserver.Stored{}
	for _, s := range all {
		if s.Runs() && s.Status == mcpserver.Approved && g.checkElsewhere(s.Server) == nil {
			approved[s.ID] = s
		}
	}
	for _, c := range g.connections() {
		if now, still := approved[c.ID]; !still || now.Changes(c.Server) != "" {
			g.stop(c)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == nil {
		g.running = map[string]*connection{}
	}
	for id, s := range approved {
		if g.running[id] == nil && ctx.Err() == nil {
			c := &connection{Stored: s, ended: make(chan struct{})}
			var serving context.Context
			serving, c.end = context.WithCancel(ctx)
			g.running[id] = c
			go func() {
				if g.serve(serving, c) {
					g.restart(ctx, c)
				}
			}()
		}
	}
	return nil
}

// checkElsewhere returns an error for a server that does not run in this workspace; see Elsewhere.
func (g *Gateway) checkElsewhere(s mcpserver.Server) error {
	if g.Elsewhere && len(s.Programs)+len(g.Programs(s.Command)) > 0 {
		return errors.New("its command names files, so it runs in the first project alone")
	}
	return nil
}

// addressOf returns host:port of a URL, nothing for an empty one.
func addressOf(text string) []string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil
	}
	if u.Port() == "" {
		return []string{u.Host + map[string]string{"http": ":80", "https": ":443"}[u.Scheme]}
	}
	return []string{u.Host}
}

func (g *Gateway) connections() []*connection {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.running))
}

// stop ends a server and waits until it has ended.
func (g *Gateway) stop(c *connection) {
	c.end()
	<-c.ended
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[c.ID] == c {
		delete(g.running, c.ID)
	}
}

// restart forgets a server that ended because it needs an approval, and starts it if it has one by now.
func (g *Gateway) restart(ctx context.Context, c *connection) {
	g.stop(c)
	if err := g.update(ctx); err != nil && ctx.Err() == nil {
		g.Logger.Error("start an MCP server again", "server", c.Name, "err", err)
	}
}

func (g *Gateway) endAll() {
	for _, c := range g.connections() {
		g.stop(c)
	}
}

// offer passes on all tools that are offered.
func (g *Gateway) offer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := []Tool{}
	for _, c := range g.running {
		for name, t := range c.offered {
			all = append(all, Tool{name, t})
		}
	}
	slices.SortFunc(all, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	g.Offer(all)
}

// set sets the session of a server and its offered tools.
func (g *Gateway) set(c *connection, session *mcp.ClientSession, offered map[string]mcpserver.Tool) {
	g.mu.Lock()
	c.session, c.offered = session, offered
	g.mu.Unlock()
	g.offer()
}

// Call is a call of an offered tool.
type Call struct {
	Chat, Session, Call string
	Tool                string // the name under which it is offered
	Arguments           json.RawMessage
}

// Call calls a tool. It refuses a tool that is not offered any more.
func (g *Gateway) Call(ctx context.Context, c Call) (*mcp.CallToolResult, error) {
	server, session, tool := g.find(c.Tool)
	if session == nil {
		return nil, handlers.Refuse(handlers.NotFound,
			"The tool %s is not available: its MCP server does not run or is not approved.", c.Tool)
	}
	running := g.begin(ctx, server, c)
	defer g.end(server, running)
	called := events.MCPCalled{Server: server.ID, Name: server.Name, Tool: tool.Name, SHA256: tool.SHA256,
		Session: c.Session, Call: c.Call, Arguments: c.Arguments}
	if err := g.record(ctx, c.Chat, called); err != nil {
		return nil, err
	}
	began := time.Now()
	result, err := session.CallTool(running.ctx, &mcp.CallToolParams{Name: tool.Name, Arguments: c.Arguments})
	if err == nil {
		result.Content = append(result.Content, g.end(server, running)...)
	}
	returned := events.MCPReturned{Session: c.Session, Call: c.Call, DurationMS: time.Since(began).Milliseconds()}
	if err != nil {
		returned.Error = err.Error()
		err = handlers.Refuse(handlers.Conflict, "The MCP server %s did not answer: %v", server.Name, err)
	} else if returned.Result, err = json.Marshal(result); err != nil {
		return nil, fmt.Errorf("encode the result of %s: %w", c.Tool, err)
	}
	if failed := g.record(ctx, c.Chat, returned); failed != nil {
		return nil, failed
	}
	return result, err
}

// find returns the running server of a tool. session is nil if there is none.
func (g *Gateway) find(name string) (c *connection, session *mcp.ClientSession, t mcpserver.Tool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.running {
		if t, offered := c.offered[name]; offered {
			return c, c.session, t
		}
	}
	return nil, nil, t
}

// recordTime limits the append of an event.
const recordTime = 30 * time.Second

// record appends an event, even if ctx has ended: a call that the log stores and whose answer is not awaited would
// never have a result.
func (g *Gateway) record(ctx context.Context, chat string, d events.Data) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	e, err := events.New(chat, events.EngineActor(g.Engine), d)
	if err != nil {
		return err
	}
	_, err = g.Log.Append(ctx, e)
	return err
}
