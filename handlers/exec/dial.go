package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"

	"pocketcoder/sandbox/wire"
)

// ErrNotServed means that no execution of a chat listens on a port.
var ErrNotServed = errors.New("nothing serves there")

// Dial connects to a port of 127.0.0.1 on which a background command or a person's shell of the chat listens. If
// several listen, it takes the newest. The connection ends with its command.
func (x *Executions) Dial(ctx context.Context, chat string, port int) (net.Conn, error) {
	return x.DialAny(ctx, x.Servers(chat), port)
}

// Servers returns the executions of a chat that Dial can reach, the newest first. Only the process that runs the
// executions knows them.
func (x *Executions) Servers(chat string) (executions []string) {
	for _, u := range x.running.servers(chat) {
		executions = append(executions, u.requested.Exec)
	}
	return executions
}

// DialAny is Dial for executions of any process. It takes the first execution that listens on the port.
func (x *Executions) DialAny(ctx context.Context, executions []string, port int) (net.Conn, error) {
	err := errors.New("no command of the chat runs in the background")
	for _, execution := range executions {
		var conn net.Conn
		if conn, err = x.connect(ctx, execution, port); err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connect to port %d: %w", port, err)
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrNotServed, err)
}

// servers returns the runs of a chat that can be connected to, the newest first.
func (r *runningExecutions) servers(chat string) (runs []*run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.byExec {
		if u.chat == chat && u.serving() {
			runs = append(runs, u)
		}
	}
	slices.SortFunc(runs, func(a, b *run) int { return b.at.Compare(a.at) })
	return runs
}

func (u *run) serving() bool {
	_, began := u.startInfo()
	return u.request.Ports && began
}

// connect returns a connection whose other end is in the sandbox.
func (x *Executions) connect(ctx context.Context, execution string, port int) (net.Conn, error) {
	ours, theirs := net.Pipe()
	open, cancel := context.WithCancel(context.Background()) // the connection outlives ctx
	if u, ok := x.running.get(execution); ok {               // otherwise another process runs it
		u.connections.Add(1)
		context.AfterFunc(open, func() { u.use(); u.connections.Add(-1) })
	}
	c := &connection{Conn: ours, cancel: cancel}
	input, connected, ended := make(chan wire.Input), make(chan bool, 1), make(chan error, 1)
	go func() {
		defer close(input)
		pump(open, theirs, input)
	}()
	go func() {
		defer theirs.Close()
		defer cancel()
		r := wire.Request{Op: wire.Dial, Exec: execution, Workspace: x.Workspace, Port: port, Input: input}
		result, err := wire.Call(open, x.Conn, wire.RunSubject(x.Pool), r, theirs, writer(func(p []byte) (int, error) {
			select {
			case connected <- true: // stderr of a Dial has no other content
			default:
			}
			return len(p), nil
		}))
		if err == nil && result.Reason != wire.Exited {
			err = errors.New(cmp.Or(result.Error, string(result.Reason)))
		}
		if err != nil {
			c.failed.Store(&err)
		}
		ended <- err
	}()
	var err error
	select {
	case <-connected:
		return c, nil
	case err = <-ended:
		if err == nil || len(connected) > 0 { // the connection was made and has ended
			return c, nil
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.Close()
	return nil, err
}

// pump copies what from returns to a channel, until from ends.
func pump(ctx context.Context, from io.Reader, to chan<- wire.Input) {
	for {
		b := make([]byte, wire.ChunkSize)
		n, err := from.Read(b)
		if n > 0 {
			select {
			case to <- wire.Input{Data: b[:n]}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// connection is one end of a pipe. Its Read returns the error of the other end instead of EOF.
type connection struct {
	net.Conn
	cancel context.CancelFunc
	failed atomic.Pointer[error]
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if failed := c.failed.Load(); err == io.EOF && failed != nil {
		err = *failed
	}
	return n, err
}

// Close also ends the call to the worker.
func (c *connection) Close() error {
	defer c.cancel()
	return c.Conn.Close()
}
