package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"pocketcoder/sandbox/wire"
)

// dial connects to what a running command serves, and says so on stderr: r.Input goes there, and what comes back to stdout, until
// the server has no more to say. When the input ends the server is told, and may go on.
func (w *Worker) dial(ctx context.Context, r wire.Request, stdout, stderr io.Writer) error {
	conn, err := w.connect(ctx, r.Exec, r.Port)
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
				return // and reading ends too, or goes on until the server has said all
			}
		}
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		}
	}()
	if _, err := io.Copy(stdout, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("read from port %d of exec %s: %w", r.Port, r.Exec, err)
	}
	return nil
}
