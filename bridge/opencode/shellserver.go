package opencode

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"pocketcoder/bridge/opencode/shellsocket"
	"pocketcoder/sandbox/wire"
)

// ShellServer answers pocketcoder-shell, which OpenCode runs for each command of the model. It receives commands on a
// socket, passes them to Exec, and returns their output. It decides nothing: Exec decides whether the command may run.
// A command runs at most once. Closing the connection cancels the command. A ShellServer can be served once.
type ShellServer struct {
	Listener net.Listener // from ListenForShells, or a TCP listener
	Secret   string       // a shell must send it first; empty for a Unix socket
	Exec     wire.Handler
	Logger   *slog.Logger
}

const (
	requestTime    = 10 * time.Second              // from connecting to the end of the request
	answerTime     = wire.CancelWait + time.Second // from the cancel of a command to the end of its connection
	acceptPause    = 100 * time.Millisecond        // after a failure to accept a connection
	maxConnections = 512                           // connections at a time; further ones wait
	maxSunPath     = 103                           // bytes in the path of a Unix socket: Linux takes 107, macOS 103
)

// ListenForShells opens the Unix socket at path, in a directory of mode 0700. The caller must hold the lock
// of that directory, because an existing socket is replaced.
func ListenForShells(path string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) { return nil, fmt.Errorf("open socket %s: %w", path, err) }
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fail(err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(err)
	}
	short := path
	if len(path) > maxSunPath {
		if runtime.GOOS != "linux" {
			return fail(fmt.Errorf("the path has %d bytes, this system takes %d; choose a shorter directory with --data",
				len(path), maxSunPath))
		}
		d, err := os.Open(dir)
		if err != nil {
			return fail(err)
		}
		defer d.Close()
		short = fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), filepath.Base(path))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	l.SetUnlinkOnClose(false) // short is no longer valid at that time; the next listener replaces the socket
	return l, nil
}

// Serve answers until ctx ends. It then cancels the commands that run, answers their shells, and returns nil.
func (s *ShellServer) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.Listener.Close() })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	free := make(chan struct{}, maxConnections)
	for {
		free <- struct{}{}
		conn, err := s.Listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil { // such as too many open files
			<-free
			s.Logger.Error("accept a connection of pocketcoder-shell", "err", err)
			time.Sleep(acceptPause)
			continue
		}
		serving.Go(func() {
			defer func() { <-free }()
			defer conn.Close()
			if err := s.serve(ctx, conn); err != nil {
				s.Logger.Debug("a shell got no answer", "err", err)
			}
		})
	}
}

func (s *ShellServer) serve(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn.SetReadDeadline(time.Now().Add(requestTime))
	stop := context.AfterFunc(ctx, func() {
		conn.SetReadDeadline(time.Now())
		conn.SetWriteDeadline(time.Now().Add(answerTime))
	})
	defer stop()
	frames, to := shellsocket.NewReader(conn, shellsocket.MaxRequest), &shellWriter{conn: conn}
	if s.Secret != "" {
		kind, secret, err := frames.Next()
		if err != nil || kind != shellsocket.Secret || subtle.ConstantTimeCompare(secret, []byte(s.Secret)) != 1 {
			return errors.New("a program without the secret requested a command")
		}
	}
	kind, body, err := frames.Next()
	if err != nil {
		return fmt.Errorf("read a shell's request: %w", err)
	}
	r, err := shellsocket.ParseRequest(body)
	if kind != shellsocket.Requested || err != nil {
		return to.finish(wire.ExitRefused, "not run: pocketcoder-shell and PocketCoder have different versions; build both from the same source")
	}
	if err := to.write(shellsocket.Accepted, nil); err != nil {
		return err
	}
	conn.SetReadDeadline(time.Time{})
	go watchShell(frames, cancel)
	result := s.Exec(ctx, wire.Request{Session: r.Session, Call: r.Call, Command: r.Command, Cwd: r.Cwd},
		to.output(shellsocket.Stdout), to.output(shellsocket.Stderr))
	return to.finish(result.ExitCode, explainResult(result))
}

// watchShell cancels the command if the shell asks for that, or closes the connection.
func watchShell(frames *shellsocket.Reader, cancel func()) {
	defer cancel()
	for {
		if _, _, err := frames.Next(); err != nil {
			return
		}
		cancel() // Cancel is the only frame of a shell whose command runs
	}
}

// explainResult returns a message for a person if the exit code alone is not enough.
func explainResult(r wire.Result) string {
	switch r.Reason {
	case wire.Refused:
		return "not run: " + r.Error
	case wire.TimedOut:
		return "stopped: the command took longer than allowed"
	case wire.Cancelled:
		return "stopped: the command was cancelled"
	case wire.Memory, wire.Processes, wire.FileSize, wire.CPUTime, wire.OpenFiles, wire.OutputSize:
		return fmt.Sprintf("stopped: the command passed its limit of %s", r.Reason)
	case wire.ProtectedName:
		return "stopped: the command created or changed protected files again and again"
	case wire.Lost:
		return "lost, the command may have run: " + r.Error
	}
	return ""
}

type shellWriter struct {
	conn net.Conn

	mu  sync.Mutex
	buf []byte
}

func (w *shellWriter) write(kind shellsocket.Kind, body []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = shellsocket.Append(w.buf[:0], kind, body)
	_, err := w.conn.Write(w.buf)
	return err
}

// finish ends the command for the shell. The shell prints the message on one line.
func (w *shellWriter) finish(code int, message string) error {
	return w.write(shellsocket.Finished, append([]byte{byte(code)}, wire.OneLine(message)...))
}

// output returns the command's stdout or stderr. A write blocks while the shell reads nothing.
func (w *shellWriter) output(kind shellsocket.Kind) io.Writer { return shellOutput{w, kind} }

type shellOutput struct {
	to   *shellWriter
	kind shellsocket.Kind
}

func (o shellOutput) Write(p []byte) (int, error) {
	if err := o.to.write(o.kind, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
