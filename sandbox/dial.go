package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// Limits of the open connections: to one command, enough for the tabs of a browser; to all commands, few enough to
// leave most of the usual 1,024 descriptors to the commands. Each connection uses one descriptor, and a second one
// while it is made.
const (
	maxConnections       = 64
	maxWorkerConnections = 256
)

// dial connects to a port of a running command, and writes Connected to stderr. It copies r.Input to the port and the
// response to stdout, until the server closes the connection or the command ends. The end of the input closes only the
// sending side.
func (w *Worker) dial(ctx context.Context, r wire.Request, stdout, stderr io.Writer) error {
	s, err := w.addConnection(r.Exec)
	if err != nil {
		return fmt.Errorf("connect to port %d of exec %s: %w", r.Port, r.Exec, err)
	}
	defer w.removeConnection(s)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	conn, err := s.connect(ctx, r.Port)
	if err != nil {
		return fmt.Errorf("connect to port %d of exec %s: %w", r.Port, r.Exec, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(stderr, wire.Connected); err != nil {
		return err
	}
	go func() {
		for in := range r.Input {
			if _, err := conn.Write(in.Data); err != nil {
				return // the response may continue
			}
		}
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		}
	}()
	if _, err := io.Copy(stdout, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) && s.ctx.Err() == nil {
		return fmt.Errorf("read from port %d of exec %s: %w", r.Port, r.Exec, err)
	}
	return nil
}

// addConnection counts a connection to a command, until removeConnection.
func (w *Worker) addConnection(exec string) (*server, error) {
	if w.config.Isolation.Level == isolation.Landlock {
		return nil, errors.New("ports of commands cannot be reached with Landlock: install bubblewrap on the worker's machine")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.serving[exec]
	switch {
	case s == nil:
		return nil, errors.New("it is not running here, or was not started to serve ports")
	case s.dials >= maxConnections:
		return nil, fmt.Errorf("it has %d connections open already", maxConnections)
	case w.dials >= maxWorkerConnections:
		return nil, fmt.Errorf("the worker has %d connections open already", maxWorkerConnections)
	}
	s.dials++
	w.dials++
	return s, nil
}

func (w *Worker) removeConnection(s *server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.dials--
	w.dials--
}
