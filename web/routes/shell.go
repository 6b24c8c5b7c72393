package routes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"

	"pocketcoder/handlers/exec"
	"pocketcoder/sandbox/wire"
	"pocketcoder/web/api"
)

const (
	// ShellWindow is how much output, in bytes, may be on its way to a client that has not said that it took it.
	ShellWindow = 256 << 10

	maxMessage  = 64 << 10         // bytes a client may send at once
	maxSide     = 1000             // rows or columns
	pingEvery   = 20 * time.Second // less than proxies wait, 60 s mostly
	pongTimeout = time.Minute
)

// defaultKind is what the page's terminal is like, for programs in the shell.
const defaultKind = "xterm-256color"

var validKind = regexp.MustCompile(`^[A-Za-z0-9._+-]{1,64}$`)

// Shells opens shells of people in the sandbox, over a WebSocket.
//
// A shell takes the path of `pocketcoder sandbox shell`, in the name of the account: handlers decide who may open one,
// and record it. It ends with the connection, the login, and the right to the chat. A client that takes output slowly
// slows the command down: at most ShellWindow bytes are on their way to it.
type Shells struct {
	API  *api.Server
	Conn *nats.Conn // may ask the handlers for a person's shell
}

const aboutShell = "A WebSocket to a shell of the caller's own in the sandbox of the chat. Binary messages are what is typed, and what the shell prints. " +
	`Text messages of the client are JSON: {"cols": 80, "rows": 24} is a new size, and {"taken": 4096} is how many bytes of the output it has taken so far; ` +
	"the shell waits when 262144 more are on their way. The last message is the result as JSON. The shell ends with the connection."

func (s *Shells) Routes() []api.Route {
	return []api.Route{{
		Method: "GET", Path: "/api/chats/{id}/shell", About: aboutShell, Access: api.Accounts, Answer: ending{}, Serve: s.Serve,
		Query: []api.Param{
			{Name: "cols", About: "columns of the terminal, 80 without it", Integer: true}, {Name: "rows", About: "rows of the terminal, 24 without it", Integer: true},
			{Name: "term", About: "what the terminal is like for programs in the shell: " + defaultKind + " without it"},
			{Name: "private", About: "true does not record what the shell prints"},
		},
	}}
}

// ending is how a shell ended.
type ending struct {
	ExitCode int    `json:"exit_code"`
	Reason   string `json:"reason"` // why it did not end by itself, such as refused or cancelled; empty when it did
	Error    string `json:"error"`  // for a person
}

// Serve opens a shell in the chat that the path names, and serves it until it ends.
func (s *Shells) Serve(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	chat, since := r.PathValue("id"), s.API.Model.Seq() // before the caller's access is checked
	if err := s.API.PersonMayWrite(r, caller, chat); err != nil {
		return err
	}
	request, err := requestOf(r, caller)
	if err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return api.Problem{Status: http.StatusUpgradeRequired, Message: "Open this address as a WebSocket."}
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil // it has answered
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxMessage)
	ctx, cancel := s.API.WhileAllowed(r, caller, chat, since, func() error {
		return s.API.PersonMayWrite(r, caller, chat)
	})
	defer cancel()
	c := &shellConnection{conn: conn, kind: request.Terminal.Kind, input: make(chan wire.Input),
		room: make(chan struct{}, 1)}
	go func() {
		defer cancel()
		c.read(ctx)
	}()
	go func() {
		defer cancel()
		c.ping(ctx)
	}()
	request.Input = c.input
	out := shellOutput{ctx, c}
	result, err := wire.Call(ctx, s.Conn, wire.PersonSubject, request, out, out)
	if err != nil {
		result = wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: err.Error()}
	}
	c.finish(ctx, ending{result.ExitCode, string(result.Reason), result.Error})
	return nil
}

// requestOf returns what a caller asks the handlers for.
func requestOf(r *http.Request, caller api.Caller) (q wire.Request, err error) {
	q = wire.Request{Session: r.PathValue("id"), Account: caller.Owner(), Cwd: "/",
		Terminal: &wire.Terminal{Kind: cmp.Or(r.URL.Query().Get("term"), defaultKind)}}
	if q.Account == "" && !caller.IsOperator { // the handlers would take that for the operator
		return q, api.Unauthorized()
	}
	if !validKind.MatchString(q.Terminal.Kind) {
		return q, api.BadField("term", "validation_invalid_value", "want a name such as "+defaultKind)
	}
	for name, side := range map[string]*uint16{"cols": &q.Terminal.Cols, "rows": &q.Terminal.Rows} {
		text := cmp.Or(r.URL.Query().Get(name), map[string]string{"cols": "80", "rows": "24"}[name])
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n < 1 || n > maxSide {
			return q, api.BadField(name, "validation_invalid_value", "want a number from 1 to %d, got %q", maxSide,
				api.Truncate(text, 40))
		}
		*side = uint16(n)
	}
	if text := r.URL.Query().Get("private"); text != "" {
		private, err := strconv.ParseBool(text)
		if err != nil {
			return q, api.BadField("private", "validation_invalid_type", "want true or false, got %q", api.Truncate(text, 40))
		}
		if private {
			q.Call = exec.PrivateShell
		}
	}
	return q, nil
}

type shellConnection struct {
	conn  *websocket.Conn
	kind  string // of the terminal
	input chan wire.Input

	mu          sync.Mutex
	sent, taken int64
	room        chan struct{} // taken has grown
}

// shellMessage is what a client says besides what is typed.
type shellMessage struct {
	Cols, Rows uint16
	Taken      int64
}

// read passes on what the client says, until it says nothing more or breaks the protocol.
func (c *shellConnection) read(ctx context.Context) {
	for {
		typ, body, err := c.conn.Read(ctx)
		if err != nil {
			return
		}
		in := wire.Input{Data: body}
		if typ == websocket.MessageText {
			var m shellMessage
			if json.Unmarshal(body, &m) != nil {
				return
			}
			c.credit(m.Taken)
			if m.Cols == 0 || m.Rows == 0 {
				continue
			}
			in = wire.Input{Size: &wire.Terminal{Cols: min(m.Cols, maxSide), Rows: min(m.Rows, maxSide), Kind: c.kind}}
		}
		select {
		case c.input <- in:
		case <-ctx.Done():
			return
		}
	}
}

func (c *shellConnection) credit(taken int64) {
	c.mu.Lock()
	c.taken = max(c.taken, min(taken, c.sent))
	c.mu.Unlock()
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// ping keeps the connection open through proxies, and returns when the client is gone.
func (c *shellConnection) ping(ctx context.Context) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		answered, cancel := context.WithTimeout(ctx, pongTimeout)
		err := c.conn.Ping(answered)
		cancel()
		if err != nil {
			return
		}
	}
}

// finish says how the shell ended, to a client that is still there.
func (c *shellConnection) finish(ctx context.Context, how ending) {
	if ctx.Err() != nil {
		c.conn.Close(websocket.StatusPolicyViolation, "the shell has ended")
		return
	}
	body, _ := json.Marshal(how) // a struct of texts and a number
	if c.conn.Write(ctx, websocket.MessageText, body) == nil {
		c.conn.Close(websocket.StatusNormalClosure, "")
	}
}

// shellOutput is what the shell prints.
type shellOutput struct {
	ctx context.Context
	*shellConnection
}

var errGone = errors.New("the client is gone")

// Write sends a piece of output once the client has room for it.
func (o shellOutput) Write(p []byte) (int, error) {
	for !o.reserve(int64(len(p))) {
		select {
		case <-o.room:
		case <-o.ctx.Done():
			return 0, errGone
		}
	}
	if err := o.conn.Write(o.ctx, websocket.MessageBinary, p); err != nil {
		return 0, errors.Join(errGone, err)
	}
	return len(p), nil
}

// reserve counts bytes as sent, if there is room for them.
func (c *shellConnection) reserve(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent-c.taken+n > ShellWindow {
		return false
	}
	c.sent += n
	return true
}
