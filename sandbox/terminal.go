package sandbox

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/wire"
)

const (
	// how long output is read after the shell has exited while other processes hold the terminal
	outputGrace = 100 * time.Millisecond
	// largest kernel buffer of a terminal (tty_buffer.c), the same as of a pipe (pipe(7))
	terminalBuffer = 64 << 10
	// largest unread input in bytes: more than a person types or pastes
	maxInputBuffer = 1 << 20
)

// isAtTerminal reports whether the command runs at a terminal.
func (c *command) isAtTerminal() bool { return c.stderr == nil }

// outputReader reads the output of a command, from a pipe or a terminal. After its deadline it returns the output that
// was printed before: the deadline may pass while a slow reader is waited for.
type outputReader struct {
	*os.File
	rest int // bytes read after the end
}

// screen returns a reader of the terminal's output. It ends when no process holds the terminal any more, or a moment
// after its shell has exited: closing it then hangs up.
func (c *command) screen() *outputReader {
	go func() {
		<-c.exited
		c.stdout.SetReadDeadline(time.Now().Add(outputGrace))
	}()
	return &outputReader{File: c.stdout}
}

// Read returns, after the deadline, the output that was printed before.
func (s *outputReader) Read(p []byte) (int, error) {
	n, err := s.File.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) || s.rest >= terminalBuffer {
		return n, err
	}
	if n = readNow(s.File, p); n == 0 {
		return 0, err
	}
	s.rest += n
	return n, nil
}

// readNow reads the available bytes without waiting.
func readNow(f *os.File, buffer []byte) (n int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	failed := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), buffer) })
	if failed != nil || err != nil {
		return 0
	}
	return n
}

// handleInput handles the input of a command until the command or its input ends.
func (w *Worker) handleInput(c *command, exec string, input <-chan wire.Input, finished <-chan struct{}) {
	keys := &keyboard{more: make(chan struct{}, 1)}
	if c.isAtTerminal() {
		go func() {
			if err := keys.copyTo(c.stdout, finished); err != nil && !isClosed(finished) {
				w.config.Log.Warn("input not delivered", "exec", exec, "err", err)
			}
		}()
	}
	if c.stdin != nil {
		defer c.stdin.Close()
		go func() { <-finished; c.stdin.Close() }() // ends a blocked write
	}
	for {
		select {
		case in, more := <-input:
			if !more {
				return
			}
			if err := c.readInput(in, keys); err != nil && !isClosed(finished) {
				w.config.Log.Warn("input not delivered", "exec", exec, "err", err)
			}
		case <-finished:
			return
		}
	}
}

var errUnread = errors.New("the command did not read its input, and was ended")

// keyboard writes typed input to a terminal, in order, on its own goroutine, so that a program that does not read can
// still receive signals.
type keyboard struct {
	mu    sync.Mutex
	typed []byte
	more  chan struct{} // input was typed
}

// write returns false if the buffer is full.
func (k *keyboard) write(p []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.typed)+len(p) > maxInputBuffer {
		return false
	}
	k.typed = append(k.typed, p...)
	select {
	case k.more <- struct{}{}:
	default:
	}
	return true
}

func (k *keyboard) copyTo(terminal io.Writer, finished <-chan struct{}) error {
	for {
		select {
		case <-k.more:
		case <-finished:
			return nil
		}
		k.mu.Lock()
		p := k.typed
		k.typed = nil
		k.mu.Unlock()
		if _, err := terminal.Write(p); err != nil {
			return err
		}
	}
}

func (c *command) readInput(in wire.Input, keys *keyboard) error {
	if c.stdin != nil && len(in.Data) > 0 {
		_, err := c.stdin.Write(in.Data) // a caller has to wait until the command reads
		return err
	}
	if (len(in.Data) > 0 || in.Size != nil) && !c.isAtTerminal() {
		return errors.New("the command has no terminal")
	}
	if len(in.Data) > 0 && !keys.write(in.Data) {
		c.inputOverflow.Store(true)
		select {
		case c.exceeded <- wire.Cancelled:
		default: // it has ended
		}
		return errUnread
	}
	if in.Size != nil {
		if err := resize(c.stdout, *in.Size); err != nil {
			return err
		}
	}
	if in.Signal == "" {
		return nil
	}
	s := unix.SignalNum(in.Signal)
	if s == 0 {
		return errors.New("there is no signal " + in.Signal)
	}
	c.signal(s)
	return nil
}

// hangUp ends the terminal of a command as a line that breaks does: its processes get SIGHUP, because an interactive
// shell ignores SIGTERM, and a moment later they read the end of their input. The moment is for their last output. A
// shell that is about to read when the signal comes reads on (bash 5.2, 1 of 180 times beside other work), and then
// ends.
func (c *command) hangUp() {
	if c.isAtTerminal() {
		c.signal(syscall.SIGHUP)
		c.stdout.SetReadDeadline(time.Now().Add(wire.KillGrace / 2)) // then copy closes it
	}
}
