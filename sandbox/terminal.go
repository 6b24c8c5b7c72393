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
	// how long a terminal is listened to once its shell has exited and others hold it
	lastWords = 100 * time.Millisecond
	// bytes that the kernel keeps for it at most (tty_buffer.c), as in a pipe (pipe(7))
	screenBuffer = 64 << 10
	// bytes that are kept of what a program does not read: more than anybody types or pastes
	maxTyped = 1 << 20
)

// isAtTerminal reports whether the command runs at a terminal.
func (c *command) isAtTerminal() bool { return c.stderr == nil }

// screen is what a command prints, into a pipe or at a terminal, with all that was printed before its deadline: that
// may pass while who it is for is slow.
type screen struct {
	*os.File
	late int // bytes read after the end
}

// screen is what stands on a terminal. It ends when nobody holds the terminal any more, or a moment after its shell has
// exited: closing it then hangs up.
func (c *command) screen() *screen {
	go func() {
		<-c.exited
		c.stdout.SetReadDeadline(time.Now().Add(lastWords))
	}()
	return &screen{File: c.stdout}
}

// Read gives, after the end, what was there before.
func (s *screen) Read(p []byte) (int, error) {
	n, err := s.File.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) || s.late >= screenBuffer {
		return n, err
	}
	if n = readNow(s.File, p); n == 0 {
		return 0, err
	}
	s.late += n
	return n, nil
}

// readNow reads what there is, without waiting.
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

// listen handles the input of a command until the command or its input ends.
func (w *Worker) listen(c *command, exec string, input <-chan wire.Input, finished <-chan struct{}) {
	keys := &keyboard{more: make(chan struct{}, 1)}
	if c.isAtTerminal() {
		go func() {
			if err := keys.typeTo(c.stdout, finished); err != nil && !isClosed(finished) {
				w.config.Log.Warn("input not delivered", "exec", exec, "err", err)
			}
		}()
	}
	if c.stdin != nil {
		defer c.stdin.Close()
		go func() { <-finished; c.stdin.Close() }() // ends a write that nobody reads
	}
	for {
		select {
		case in, more := <-input:
			if !more {
				return
			}
			if err := c.hear(in, keys); err != nil && !isClosed(finished) {
				w.config.Log.Warn("input not delivered", "exec", exec, "err", err)
			}
		case <-finished:
			return
		}
	}
}

var errUnread = errors.New("the command did not read what was typed, and was ended")

// keyboard writes typed input to a terminal, in order, on its own goroutine, so that a program that does not read can
// still receive signals.
type keyboard struct {
	mu    sync.Mutex
	typed []byte
	more  chan struct{} // input was typed
}

// press returns false if the buffer is full.
func (k *keyboard) press(p []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.typed)+len(p) > maxTyped {
		return false
	}
	k.typed = append(k.typed, p...)
	select {
	case k.more <- struct{}{}:
	default:
	}
	return true
}

func (k *keyboard) typeTo(terminal io.Writer, finished <-chan struct{}) error {
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

func (c *command) hear(in wire.Input, keys *keyboard) error {
	if c.stdin != nil && len(in.Data) > 0 {
		_, err := c.stdin.Write(in.Data) // a caller has to wait until the command reads
		return err
	}
	if (len(in.Data) > 0 || in.Size != nil) && !c.isAtTerminal() {
		return errors.New("the command has no terminal")
	}
	if len(in.Data) > 0 && !keys.press(in.Data) {
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

// hangUp sends SIGHUP to the processes at a terminal, because an interactive shell ignores SIGTERM.
func (c *command) hangUp() {
	if c.isAtTerminal() {
		c.signal(syscall.SIGHUP)
	}
}
