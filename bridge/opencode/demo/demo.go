// Package demo is a scripted model: a server that speaks the streaming OpenAI chat protocol on loopback and answers
// from a script. OpenCode uses it like any provider, so the whole system runs on a machine without a key, and every
// test uses the real OpenCode.
//
// A user message with lines that start with @@ is a script; its other lines are ignored. Steps are separated by
// @@next, and step k is played when k assistant messages follow that user message in the request: a tool call in
// step 0 is answered by step 1. Within a step, text, reasoning, calls and waits come in the order written.
//
//	@@text n=5 delay=20            n deltas "t0 " "t1 " …, delay ms apart (default: n=1 delay=0)
//	@@say words                    one delta with these words
//	@@reason n=4 delay=20          like @@text, as reasoning: "r0 " "r1 " …
//	@@call TOOL {json}             a tool call, the arguments byte for byte; several lines are parallel calls
//	@@callid ID                    the id of the calls that follow in this step (default: a new id for each)
//	@@argchunks 20                 stream this step's tool arguments in pieces of that many characters
//	@@wait 5000                    wait, in ms
//	@@status 500 [message]         answer this step with an HTTP error instead
//	@@failfirst 2 500 [message]    the first 2 requests of this step fail so, then it plays
//	@@header Retry-After: 1        an HTTP header on this step's answers and errors
//	@@hang                         send nothing more until the client disconnects
//	@@cut                          cut the connection
//	@@usage in=100 out=20          the reported token counts (default: estimated from the text)
//	@@finish length                the finish reason, instead of stop or tool_calls
//	@@next                         the next step begins
//
// A step whose calls were interrupted does not count as played: once a prompt has resumed the turn, the interrupted
// calls are made again. A question is not asked again, because the prompt holds its answer.
//
// A step past the end is a short closing text. If a line breaks these rules, every answer to that message is a text
// that names the line and the error. The prompt of a subagent may be a separate script.
//
// The last message of the user is answered. A text of [Model.Continue] is not a new message: the message before it is
// answered. A message that is not a script starts the guided tour, which works with any text.
//
// Without @@callid, every tool call has a unique id, across requests and restarts. The package knows some of
// OpenCode's prompts (titles, summaries, the working directory). It must not know the rest of the product.
package demo

import (
	"fmt"
	"net"
	"net/http"
	"strings"
)

// Model answers chat requests. Set the fields before serving.
type Model struct {
	// Continue are the prompts that resume an interrupted turn, or how they begin. The one after a question has its
	// answer. A report on delegates is among them, so that a script can say what comes after it.
	Continue []string
	// Provider is markdown that says how a real model is connected; the guided tour ends with it.
	Provider string

	failures failures
}

// Server serves a Model on a loopback address.
type Server struct {
	http *http.Server
	addr net.Addr
	done chan struct{}
}

// Open listens on addr, a loopback host and a port (0 for a free one), and serves m until Close.
func Open(addr string, m *Model) (*Server, error) {
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("open demo model: %w", err)
	}
	if !tcp.IP.IsLoopback() {
		return nil, fmt.Errorf("open demo model: address %q is not a loopback address", addr)
	}
	ln, err := net.ListenTCP("tcp", tcp)
	if err != nil {
		return nil, fmt.Errorf("open demo model: %w", err)
	}
	s := &Server{http: &http.Server{Handler: m.handler()}, addr: ln.Addr(), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.http.Serve(ln) // returns after Close
	}()
	return s, nil
}

// URL is the base of the provider, without a trailing slash: http://127.0.0.1:PORT/v1.
func (s *Server) URL() string { return "http://" + s.addr.String() + "/v1" }

// Close ends every running answer and stops listening.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
}

func (m *Model) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", models)
	mux.HandleFunc("POST /v1/chat/completions", m.complete)
	return mux
}

func models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list",
		"data":   []any{map[string]any{"id": "demo", "object": "model", "created": 0, "owned_by": "pocketcoder"}},
	})
}

func (m *Model) complete(w http.ResponseWriter, r *http.Request) {
	req, err := readRequest(w, r)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := m.play(r.Context(), newReply(w, req), m.step(req)); err != nil {
		panic(http.ErrAbortHandler) // net/http's way to close the connection without ending the answer
	}
}

func (m *Model) step(req request) step {
	if s, ok := internalRequest(req); ok {
		return s
	}
	t := req.turn(m.Continue)
	if len(t.interrupted) > 0 {
		return t.repeat()
	}
	if !isScript(t.text) {
		return m.guide(req, t)
	}
	steps, err := parse(t.text)
	if err != nil {
		return say("This script cannot be played.\n" + err.Error())
	}
	if t.step >= len(steps) {
		return say("The script has no more steps.")
	}
	s := steps[t.step]
	s.key = fmt.Sprintf("%s/%d/%d/%s", req.session, t.index, t.step, t.text)
	return s
}

// Texts that identify OpenCode's own requests, as of 1.18.33.
const (
	titlePrompt     = "title generator"
	summaryPrompt   = "context summarization agent"
	compactedPrompt = "Continue if you have next steps" // a user message it adds after a compaction
)

// internalRequest answers OpenCode's own requests: a title for a chat, a summary of a long chat.
func internalRequest(req request) (step, bool) {
	if len(req.Tools) > 0 {
		return step{}, false
	}
	switch system := req.system(); {
	case strings.Contains(system, titlePrompt):
		return say(title(req.turn(nil).text)), true
	case strings.Contains(system, summaryPrompt):
		return say(summary), true
	}
	return step{}, false
}

// title returns the person's first line that is not a directive.
func title(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "@@") {
			return shorten(line, 50)
		}
	}
	return "Scripted demo"
}

const summary = `## Objective
- Try PocketCoder with its demo model

## Important Details
- The demo model follows a script; there is no AI behind it

## Work State
### Completed
- The conversation so far

### Active
- (none)

### Blocked
- (none)

## Next Move
1. (none)

## Relevant Files
- (none)`
