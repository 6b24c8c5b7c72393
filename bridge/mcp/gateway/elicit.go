package gateway

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Elicitation is a question of a server to a person, while a tool of the server is called.
type Elicitation struct {
	Call
	Server string
	Params *mcp.ElicitParams
}

// runningCall is a call that a server has not answered yet.
type runningCall struct {
	Call
	ctx     context.Context
	cancel  context.CancelFunc
	notices []mcp.Content // for the model, about questions of the server
}

func (g *Gateway) begin(ctx context.Context, s *connection, c Call) *runningCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	running := &runningCall{Call: c}
	running.ctx, running.cancel = context.WithCancel(ctx)
	s.calls = append(s.calls, running)
	return running
}

// end ends a call, and returns its notices.
func (g *Gateway) end(s *connection, running *runningCall) []mcp.Content {
	g.mu.Lock()
	defer g.mu.Unlock()
	running.cancel()
	s.calls = slices.DeleteFunc(s.calls, func(c *runningCall) bool { return c == running })
	return running.notices
}

// cancelCalls ends the calls of a server that it has not answered.
func (g *Gateway) cancelCalls(s *connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range s.calls {
		c.cancel()
	}
}

// elicit asks the person of the only running call. The protocol does not say which call a question belongs to, and a
// person must not see that of another chat.
func (g *Gateway) elicit(ctx context.Context, s *connection, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	g.mu.Lock()
	calls := slices.Clone(s.calls)
	g.mu.Unlock()
	notify := func(c *runningCall, notice string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		c.notices = append(c.notices, &mcp.TextContent{Text: notice})
	}
	if len(calls) != 1 {
		for _, c := range calls {
			notify(c, "PocketCoder declined a question of the MCP server "+s.Name+
				", because several calls of its tools ran at once. Call it again, alone.")
		}
		return &mcp.ElicitResult{Action: "decline"}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(calls[0].ctx, cancel)()
	result, notice, err := g.Elicit(ctx, Elicitation{Call: calls[0].Call, Server: s.Name, Params: p})
	if notice != "" {
		notify(calls[0], notice)
	}
	return result, err
}

// queue bounds what a server sends while a person answers its question. The client keeps all messages of that time in
// memory, because it handles one after the other.
type queue struct {
	mu        sync.Mutex
	questions int
	left      int // bytes until no question is open
}

func (q *queue) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.questions++; q.questions == 1 {
		q.left = maxAnswer
	}
}

func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.questions--
}

// take reports whether the queue has room for n bytes more.
func (q *queue) take(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.questions == 0 {
		return true
	}
	q.left -= n
	return q.left >= 0
}

// queuedReader fails once a server has sent too much during a question.
type queuedReader struct {
	io.ReadCloser
	queue *queue
}

func (r queuedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if !r.queue.take(n) {
		return 0, errTooLarge
	}
	return n, err
}
