package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"pocketcoder/sandbox/wire"
)

// ErrNotServed says that nothing in a chat serves at a port.
var ErrNotServed = errors.New("nothing serves there")

// Dial connects to a port of 127.0.0.1 where a command of the chat that runs on by itself, or a person's shell, serves it: the
// newest that does. That nothing serves there may be found out only by reading. A connection ends with its command.
func (x *Exec) Dial(ctx context.Context, chat string, port int) (net.Conn, error) {
	servers := x.running.servers(chat)
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w: no command of the chat runs in the background", ErrNotServed)
	}
	if len(servers) > 1 {
		servers = slices.DeleteFunc(servers, func(u *run) bool { return !x.serves(ctx, u, port) })
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w: no command of the chat that runs in the background serves port %d", ErrNotServed, port)
	}
	return x.connect(servers[0], port), nil
}

// servers are the executions of a chat that can be connected to, the newest first.
func (r *running) servers(chat string) (found []*run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.by {
		if u.chat == chat && u.serving() {
			found = append(found, u)
		}
	}
	slices.SortFunc(found, func(a, b *run) int { return b.at.Compare(a.at) })
	return found
}

func (u *run) serving() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.request.Ports && u.began
}

// refusesWithin is how long a port that nothing serves may take to say so: it is 127.0.0.1.
const refusesWithin = 300 * time.Millisecond

// serves finds out whether a command serves a port, by a connection on which nothing is said.
func (x *Exec) serves(ctx context.Context, u *run, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, refusesWithin)
	defer cancel()
	nothing := make(chan wire.Input)
	close(nothing)
	result, err := wire.Call(ctx, x.Conn, wire.RunSubject(x.Pool), x.dial(u, port, nothing), io.Discard, io.Discard)
	return err == nil && result.Reason != wire.Refused || ctx.Err() != nil
}

func (x *Exec) dial(u *run, port int, said <-chan wire.Input) wire.Request {
	return wire.Request{Op: wire.Dial, Exec: u.requested.Exec, Workspace: x.Workspace, Port: port, Input: said}
}

// connect gives a connection whose other end is in the sandbox.
func (x *Exec) connect(u *run, port int) net.Conn {
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{Conn: ours, cancel: cancel}
	said := make(chan wire.Input)
	go func() {
		defer close(said)
		pump(ctx, theirs, said)
	}()
	go func() {
		defer theirs.Close()
		defer cancel()
		result, err := wire.Call(ctx, x.Conn, wire.RunSubject(x.Pool), x.dial(u, port, said), theirs, io.Discard)
		if err == nil && result.Reason == wire.Refused {
			err = errors.New(cmp.Or(result.Error, "the connection was refused"))
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrNotServed, err)
			c.failed.Store(&err)
		}
	}()
	return c
}

// pump passes on what is written until the writer closes.
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

// connection is one end of a pipe that says why there is nothing at the other.
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

// Close ends the call too: its writer is gone, and nothing more is said.
func (c *connection) Close() error {
	defer c.cancel()
	return c.Conn.Close()
}
