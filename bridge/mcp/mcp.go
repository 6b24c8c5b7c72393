// Package mcp is PocketCoder's own MCP server for OpenCode. With its tools the model delegates work to other chats,
// asks a person, sends a person files, proposes procedures and looks up MCP servers. OpenCode shows them to the model
// as pocketcoder_NAME, and requests a permission for each call, as for any tool. It also receives the cost of each
// title that OpenCode generates.
//
// Promises:
//   - The server answers only the running OpenCode. Each start of OpenCode gets a new secret, which its requests carry
//     in a header.
//   - The model cannot choose the caller of a tool. The plugin in OpenCode adds the session and the call, signed with a
//     key that is new at each start. The server refuses a call whose signature is missing, used, or for another tool.
//   - A call that waits reports its progress, so that OpenCode's limit of 60 s does not end it.
//   - A file that is sent is in the directory of the session, and the rules allow to read it without a person.
//   - A question or a delegation whose call has ended is not lost. It is in the log, and the answer or the result comes
//     as a message.
//
// The package must not know how OpenCode is started or confined, or how a permission request is decided.
package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/bridge/mcp/gateway"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/delegate"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
)

// Path is the path at which a Server answers.
const Path = "/mcp"

// Server is the MCP server. Set the fields before serving. It is safe for concurrent use.
type Server struct {
	Engine    string
	Chats     *chat.Chats
	Records   *record.Records
	Delegates *delegate.Delegates
	// of the tools on scheduled tasks
	Schedules *schedule.Schedules
	Preview   func(context.Context, schedule.Schedule) (schedule.Preview, error)
	Model     *projections.Model
	// Every is the time between two reports of progress; 0 for defaultEvery.
	Every time.Duration
	// Chat returns the chat of an OpenCode session
	Chat func(session string) (chat string, ok bool)
	// JudgeRead returns what the rules say about a call of a session that reads a file.
	JudgeRead func(ctx context.Context, chat, session string, tool events.Call, path string) (policy.Verdict, error)
	Gateway   *gateway.Gateway // calls the tools of Offer; nil without one
	Logger    *slog.Logger

	mu      sync.Mutex
	start   *start         // nil before the first one
	offered []gateway.Tool // of other MCP servers
	running map[string]int // calls, by chat, and of all chats under ""
}

// The limits of calls that run. Each holds a connection of the egress proxy.
const (
	maxChatCalls = 32
	maxCalls     = 512
)

// begin counts a call of a chat until end is called. It refuses a call above a limit.
func (s *Server) begin(chat string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.running[chat] >= maxChatCalls:
		return nil, handlers.Refuse(handlers.Conflict,
			"%d calls of this chat still run, which is the limit. Wait for a result, or do not make this call.", maxChatCalls)
	case s.running[""] >= maxCalls:
		return nil, handlers.Refuse(handlers.Conflict,
			"%d calls of all chats still run, which is the limit. Make this call again later.", maxCalls)
	}
	if s.running == nil {
		s.running = map[string]int{}
	}
	s.running[chat]++
	s.running[""]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[""]--
		if s.running[chat]--; s.running[chat] == 0 {
			delete(s.running, chat)
		}
	}, nil
}

// Secrets authenticate the requests and the callers of one start of OpenCode. They must not be stored.
type Secrets struct {
	Header string // the value of the header Authorization
	Key    string // signs callers
}

// defaultEvery is far below OpenCode's limit of 60 s without progress.
const defaultEvery = 10 * time.Second

// start serves one start of OpenCode.
type start struct {
	Secrets
	server  *mcp.Server
	handler http.Handler
	callers callers

	life context.Context // done once the next start is served
	end  context.CancelFunc
}

// Renew returns new secrets for the next start of OpenCode. It ends the calls of the previous one.
func (s *Server) Renew() Secrets {
	next := &start{Secrets: Secrets{Header: "Bearer " + rand.Text(), Key: rand.Text()}}
	next.callers.key = []byte(next.Key)
	next.life, next.end = context.WithCancel(context.Background())
	next.server = mcp.NewServer(&mcp.Implementation{Name: "pocketcoder", Version: "1"},
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{}, Logger: s.Logger})
	s.addTools(next)
	// The header authenticates OpenCode, and OpenCode uses a host name that only its proxy knows.
	next.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return next.server },
		&mcp.StreamableHTTPOptions{Logger: s.Logger, DisableLocalhostProtection: true})
	s.mu.Lock()
	last := s.start
	s.start = next
	s.replace(next, nil)
	s.mu.Unlock()
	if last != nil {
		last.end() // before Close, which waits for the running calls
		for session := range last.server.Sessions() {
			_ = session.Close() // its client is gone
		}
	}
	return next.Secrets
}

// Accepts reports whether the running OpenCode makes a request.
func (s *Server) Accepts(r *http.Request) bool { return s.startOf(r) != nil }

// startOf returns the start of OpenCode that makes a request, nil for none.
func (s *Server) startOf(r *http.Request) *start {
	s.mu.Lock()
	now := s.start
	s.mu.Unlock()
	if now == nil || subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(now.Header)) != 1 {
		return nil
	}
	return now
}

// ServeHTTP answers the running OpenCode, and nothing else.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := s.startOf(r)
	if now == nil {
		http.Error(w, "only the running OpenCode may use this server", http.StatusUnauthorized)
		return
	}
	switch r.URL.Path {
	case Path:
		now.handler.ServeHTTP(w, r)
	case TitlePath:
		s.countTitle(w, r)
	default:
		http.NotFound(w, r)
	}
}

// arguments are the arguments of a tool. Each tool has the argument caller, which the plugin adds.
type arguments interface{ signature() string }

// signed is embedded in the arguments of each tool.
type signed struct {
	Caller string `json:"caller,omitempty" jsonschema:"Filled in by PocketCoder. Leave it out."`
}

func (s signed) signature() string { return s.Caller }

// call is a verified call of a tool.
type call struct {
	caller
	chat     string
	every    time.Duration // between two reports of progress
	progress func(text string)
}

// command returns the fields of a command that the call leads to. A call is made once, so a command needs no id.
func (s *Server) command() handlers.Command {
	return handlers.Command{Actor: events.EngineActor(s.Engine)}
}

// tool is the function of a tool. It returns the text for the model.
type tool[In arguments] func(ctx context.Context, c call, in In) (string, error)

// add adds a tool to a server. The model gets a refusal as it is. Any other error is also logged.
func add[In arguments](s *Server, to *start, name, description string, run tool[In]) {
	mcp.AddTool(to.server, &mcp.Tool{Name: name, Description: description},
		func(ctx context.Context, r *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
			text, err := s.carryOut(ctx, to, name, in.signature(), r, func(ctx context.Context, c call) (string, error) {
				return run(ctx, c, in)
			})
			if err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
}

// carryOut verifies a call of a tool and runs it. It returns the text for the model.
func (s *Server) carryOut(ctx context.Context, to *start, name, signature string, r *mcp.CallToolRequest,
	run func(context.Context, call) (string, error)) (text string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(to.life, cancel)()
	c, end, err := s.verify(to, name, signature)
	if err == nil {
		defer end()
		c.progress, c.every = progressOf(ctx, r), cmp.Or(s.Every, defaultEvery)
		text, err = run(ctx, c)
	}
	if refused := (handlers.Refused{}); err != nil && !errors.As(err, &refused) && ctx.Err() == nil {
		s.Logger.Error("call of a tool", "tool", name, "session", c.Session, "err", err)
		err = fmt.Errorf("PocketCoder could not carry out this call: %w", err)
	}
	return text, err
}

// verify checks a signature, and returns the call that it names. end must be called when the call has ended.
func (s *Server) verify(of *start, tool, signature string) (c call, end func(), err error) {
	if c.caller, err = of.callers.take(tool, signature); err != nil {
		return c, nil, err
	}
	var known bool
	if c.chat, known = s.Chat(c.Session); !known {
		return c, nil, handlers.Refuse(handlers.NotFound, "This session belongs to no chat.")
	}
	end, err = s.begin(c.chat)
	return c, end, err
}

// progressOf returns a function that reports the progress of a call, if its client requested reports.
func progressOf(ctx context.Context, r *mcp.CallToolRequest) func(text string) {
	token, n := r.Params.GetProgressToken(), 0.0
	return func(text string) {
		if token == nil {
			return
		}
		n++
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: text})
	}
}

// await calls until, and reports the progress of the call while it runs. The first report is made at once.
func (c call) await(text string, until func() error) error {
	c.progress(text)
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	done := make(chan error, 1)
	go func() { done <- until() }()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			c.progress(text)
		}
	}
}
