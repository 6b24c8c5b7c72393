package gateway

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/events"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/sandbox/wire"
)

// process is the command of a server in the sandbox.
type process struct {
	stdout  *io.PipeReader
	input   chan wire.Input
	ctx     context.Context // ends with the command
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the next two are set
	result  wire.Result
	err     error
	errors  tail // of stderr
	closing sync.Once
}

// readEnvironment begins the command: it reads NAME=VALUE lines from stdin into the environment, up to an empty line.
// So the values are neither in the command, which other processes see, nor in the request to the worker. read takes no
// byte behind the line.
const readEnvironment = `while IFS= read -r line && [ -n "$line" ]; do export "$line"; done; unset line` + "\n"

// noTimeout is the longest possible time, in milliseconds. A request without a timeout gets that of the worker.
const noTimeout = int64(1<<63-1) / int64(time.Millisecond)

// start runs the command of a server in the sandbox. It reaches hosts through the proxy, "" for no network.
func (g *Gateway) start(ctx context.Context, s mcpserver.Stored, values map[string]string, proxy string,
	limits wire.Limits) *process {
	p := &process{input: make(chan wire.Input), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(ctx)
	var stdout *io.PipeWriter
	p.stdout, stdout = io.Pipe()
	request := wire.Request{Exec: events.NewID(), Command: readEnvironment + s.Command, Cwd: g.Workspace,
		Workspace: g.Workspace, TimeoutMS: noTimeout, Stdin: true, Input: p.input, Network: proxy, Limits: limits}
	go func() {
		defer close(p.ended)
		p.result, p.err = wire.Call(p.ctx, g.Conn, wire.RunSubject(g.Pool), request, stdout, &p.errors)
		p.cancel() // before the client reads the end of stdout
		stdout.CloseWithError(io.EOF)
	}()
	var lines strings.Builder
	for _, name := range slices.Sorted(slices.Values(s.Environment)) {
		fmt.Fprintf(&lines, "%s=%s\n", name, values[name])
	}
	_, _ = p.Write([]byte(lines.String() + "\n")) // if it failed, the command has ended
	return p
}

func (p *process) transport(q *queue) mcp.Transport {
	return &mcp.IOTransport{Reader: queuedReader{p.stdout, q}, Writer: p, MaxLineLength: maxAnswer}
}

// Write writes to the command's stdin.
func (p *process) Write(b []byte) (int, error) {
	select {
	case p.input <- wire.Input{Data: slices.Clone(b)}:
		return len(b), nil
	case <-p.ctx.Done():
		return 0, io.ErrClosedPipe
	}
}

// Close ends the command.
func (p *process) Close() error {
	p.closing.Do(p.cancel)
	return nil
}

// end ends the command and waits until it has ended.
func (p *process) end() {
	p.cancel()
	_ = p.stdout.Close() // a blocked write of its output returns
	<-p.ended
}

// explain returns why a command could not be used, with what it printed last on stderr.
func (p *process) explain(err error) error {
	p.end()
	text := lastLine(p.errors.String())
	switch {
	case p.err != nil:
		return fmt.Errorf("run its command: %w", p.err)
	case p.result.Error != "":
		return fmt.Errorf("run its command: %s", p.result.Error)
	case p.result.Reason != wire.Exited && p.result.Reason != wire.Cancelled:
		return fmt.Errorf("its command was ended: %s", p.result.Reason)
	case text != "":
		return fmt.Errorf("%w: exit code %d: %s", err, p.result.ExitCode, text)
	}
	return fmt.Errorf("%w: exit code %d", err, p.result.ExitCode)
}

// maxErrors is how much of stderr is kept, in bytes.
const maxErrors = 2 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = slices.Clone(t.kept[max(0, len(t.kept)-maxErrors):])
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.kept), "")
}
