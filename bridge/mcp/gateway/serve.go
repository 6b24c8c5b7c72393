package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/record"
)

// Times of a server.
const (
	startTime = 2 * time.Minute // to start, to initialize and to list its tools: npx may have to install it
	firstWait = time.Second     // before it is started again; doubled after each failure
	longWait  = 5 * time.Minute
)

// maxAnswer is the size of the largest message of a server, whatever the transport, and of the list of all its tools,
// in bytes. Such a message takes more than twenty times its size in memory.
const maxAnswer = 4 << 20

// errTooLarge is the error of a server that sends more than maxAnswer.
var errTooLarge = fmt.Errorf("its answer has more than the limit of %d MiB", maxAnswer>>20)

// Why a server ends.
var (
	errUnapproved = errors.New("it is not approved any more")
	errEnded      = errors.New("it has ended")
)

// serve runs a server until ctx ends. A server that ended is started again, unless it needs an approval: then serve
// returns true.
func (g *Gateway) serve(ctx context.Context, c *connection) (unapproved bool) {
	defer close(c.ended)
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		began := time.Now()
		err := g.serveOnce(ctx, c)
		if errors.Is(err, errUnapproved) || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		if time.Since(began) > longWait {
			wait = firstWait
		}
		g.Logger.Warn("MCP server ended", "server", c.Name, "err", err)
		if _, failed := g.report(ctx, c, mcpserver.Report{Problem: err.Error()}); failed != nil {
			g.Logger.Error("record the state of an MCP server", "server", c.Name, "err", failed)
		}
		if sleep.For(ctx, wait) != nil {
			return false
		}
	}
}

// serveOnce starts a server and offers its tools until it ends, or until a tool has changed.
func (g *Gateway) serveOnce(ctx context.Context, c *connection) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	values, err := g.approvedValues(ctx, c)
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "pocketcoder", Version: "1"}, &mcp.ClientOptions{
		Logger: g.Logger, Capabilities: &mcp.ClientCapabilities{},
		ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			c.queue.begin()
			defer c.queue.end()
			return g.elicit(ctx, c, r.Params)
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	hosts := append(addressOf(c.URL), c.Hosts...)
	access, err := g.Hosts.Start(c.ID, c.Name, hosts)
	if err != nil {
		return err
	}
	defer access.Done()
	if c.Command == "" {
		session, err := connect(ctx, client, remote(c.Stored, values, access.URL(g.Proxy), &c.queue))
		if err != nil {
			return err
		}
		defer g.close(c, session)
		return g.offerTools(ctx, c, session, changed)
	}
	proxy := ""
	if len(hosts) > 0 {
		proxy = access.URL(g.Hosts.Network.Proxy).String()
	}
	return g.serveCommand(ctx, c, client, values, proxy, changed)
}

// approvedValues checks that a server is still approved, and returns the values of its environment.
func (g *Gateway) approvedValues(ctx context.Context, c *connection) (map[string]string, error) {
	// Before the secrets: the program may have been rewritten since the approval.
	if err := g.checkElsewhere(c.Server); err != nil {
		return nil, err
	}
	if err := g.Programs.Check(ctx, g.Records, c.ID, true); err != nil {
		return nil, err
	}
	now, _, err := record.One[mcpserver.Server](ctx, g.Records, mcpserver.Collection, c.ID)
	if err != nil || now.Status != mcpserver.Approved {
		return nil, errors.Join(err, errUnapproved)
	}
	values, err := g.Secrets.Values(ctx, c.Stored)
	if err != nil {
		return nil, err
	}
	for _, name := range c.Environment {
		if values[name] == "" {
			return nil, fmt.Errorf("%s has no value; set it with: pocketcoder mcp secret %s %[1]s", name, c.Name)
		}
	}
	return values, nil
}

// serveCommand starts the command of a server and offers its tools until it ends, or until a tool has changed. proxy is
// the URL of its egress proxy, empty for a server without hosts.
func (g *Gateway) serveCommand(ctx context.Context, c *connection, client *mcp.Client, values map[string]string,
	proxy string, changed chan struct{}) error {
	limits, err := c.Limits.Parse()
	if err != nil {
		return err
	}
	p := g.start(ctx, c.Stored, values, proxy, limits)
	defer p.end()
	session, err := connect(ctx, client, p.transport(&c.queue))
	if err != nil {
		return p.explain(err)
	}
	defer g.close(c, session)
	err = g.offerTools(ctx, c, session, changed)
	// a request fails if the command ends meanwhile
	if errors.Is(err, errEnded) || ctx.Err() == nil && p.ctx.Err() != nil && !errors.Is(err, errUnapproved) {
		return p.explain(err)
	}
	return err
}

// connect initializes a session. It returns an error after startTime.
func connect(ctx context.Context, client *mcp.Client, t mcp.Transport) (*mcp.ClientSession, error) {
	type connected struct {
		session *mcp.ClientSession
		err     error
	}
	done := make(chan connected, 1)
	go func() {
		session, err := client.Connect(ctx, t, nil)
		done <- connected{session, err}
	}()
	select {
	case r := <-done:
		return r.session, r.err
	case <-time.After(startTime):
		return nil, fmt.Errorf("it did not answer within %s", startTime)
	}
}

// close ends a session and its calls. The session would wait for a call that the server does not answer.
func (g *Gateway) close(c *connection, session *mcp.ClientSession) {
	g.set(c, nil, nil)
	g.cancelCalls(c)
	_ = session.Close() // the server is gone, or is ended next
}

// offerTools offers the pinned tools of a session until it ends, and lists them again whenever they change. It returns
// an error if the tools are refused.
func (g *Gateway) offerTools(ctx context.Context, c *connection, session *mcp.ClientSession,
	changed <-chan struct{}) error {
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	for {
		r, err := list(ctx, session)
		if err != nil {
			return err
		}
		now, err := g.report(ctx, c, r)
		if err != nil {
			return err
		}
		switch {
		case now.Status != mcpserver.Approved:
			return errUnapproved
		case now.Problem != "":
			return errors.New(now.Problem)
		}
		offered, _ := now.Offered()
		g.set(c, session, offered)
		select {
		case <-changed:
		case err := <-ended:
			return errors.Join(errEnded, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// list returns the version of a server and its tools.
func list(ctx context.Context, session *mcp.ClientSession) (r mcpserver.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if init := session.InitializeResult(); init != nil && init.ServerInfo != nil {
		r.Version = init.ServerInfo.Version
	}
	size := 0 // of all pages
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return r, fmt.Errorf("list its tools: %w", err)
		}
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return r, fmt.Errorf("encode the input schema of %s: %w", t.Name, err)
		}
		if size += len(t.Name) + len(t.Description) + len(schema); size > maxAnswer {
			return r, fmt.Errorf("list its tools: %w", errTooLarge)
		}
		r.Tools = append(r.Tools, mcpserver.Tool{Name: t.Name, Description: t.Description, InputSchema: schema})
	}
	return r, nil
}

func (g *Gateway) report(ctx context.Context, c *connection, r mcpserver.Report) (mcpserver.Server, error) {
	return mcpserver.SaveReport{Command: handlers.Command{Actor: events.EngineActor(g.Engine)}, Record: c.ID, Of: c.Server,
		Report: r}.Save(ctx, g.Records)
}

// remote is the transport to a server with a URL. It follows no redirects, because the secrets are for the URL alone.
func remote(s mcpserver.Stored, headers map[string]string, proxy *url.URL, q *queue) mcp.Transport {
	transport := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return proxy, nil },
		ResponseHeaderTimeout: startTime, MaxResponseHeaderBytes: 64 << 10}
	return &mcp.StreamableClientTransport{Endpoint: s.URL, MaxEventSize: maxAnswer, HTTPClient: &http.Client{
		Transport:     boundedAnswers{withHeaders{transport, headers}, q},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// boundedAnswers bounds the bodies of responses. The client reads a body as a whole. It bounds the events of a stream
// by itself.
type boundedAnswers struct {
	http.RoundTripper
	queue *queue
}

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if typ, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); typ != "text/event-stream" ||
		resp.StatusCode/100 != 2 {
		resp.Body = &boundedBody{resp.Body, maxAnswer}
	} else {
		resp.Body = queuedReader{resp.Body, b.queue}
	}
	return resp, nil
}

// boundedBody fails instead of returning more than left bytes.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)]) // one more, to tell the end from the limit
	if b.left -= n; b.left < 0 {
		b.left = -1
		return 0, errTooLarge
	}
	return n, err
}

// withHeaders adds headers to each request.
type withHeaders struct {
	http.RoundTripper
	headers map[string]string
}

func (h withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h.headers {
		r.Header.Set(name, value)
	}
	return h.RoundTripper.RoundTrip(r)
}

// lastLine returns the last line of a text that is not blank.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
