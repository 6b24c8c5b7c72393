package viewer

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"pocketcoder/cmd/client"
	"pocketcoder/sandbox/wire"
)

// Terminal is the terminal of this process at which a shell in the sandbox is used.
type Terminal struct {
	In   io.Reader
	Out  io.Writer
	Kind string // TERM
}

// RunShell runs a shell in the sandbox at the terminal of this process. Whatever happens, it restores the terminal.
func RunShell(ctx context.Context, s *client.System, at Terminal, o client.Shell) (ending client.ShellEnding,
	err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	terminal := int(os.Stdin.Fd())
	before, err := term.MakeRaw(terminal)
	if err != nil {
		return ending, fmt.Errorf("make the terminal raw: %w", err)
	}
	defer term.Restore(terminal, before)
	input := make(chan wire.Input)
	go func() {
		defer stop() // the terminal is gone
		passTyped(ctx, at.In, input)
	}()
	go resized(ctx, at.Kind, terminal, input)
	o.Terminal, o.Input, o.Out = *window(at.Kind, terminal), input, at.Out
	return s.RunShell(ctx, o)
}

// passTyped passes on what the person types, until they cannot any more.
func passTyped(ctx context.Context, from io.Reader, to chan<- wire.Input) {
	for {
		b := make([]byte, 4096)
		n, err := from.Read(b)
		if n > 0 && client.Send(ctx, to, wire.Input{Data: b[:n]}) != nil || err != nil {
			return
		}
	}
}

// resized passes on the sizes of the window.
func resized(ctx context.Context, kind string, terminal int, to chan<- wire.Input) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	defer signal.Stop(changes)
	for {
		select {
		case <-changes:
			_ = client.Send(ctx, to, wire.Input{Size: window(kind, terminal)}) // it ends with ctx
		case <-ctx.Done():
			return
		}
	}
}

// window is the size of the terminal, and its kind; the size of the oldest ones when it does not say.
func window(kind string, terminal int) *wire.Terminal {
	cols, rows, err := term.GetSize(terminal)
	if err != nil {
		cols, rows = 80, 24
	}
	return &wire.Terminal{Rows: uint16(rows), Cols: uint16(cols), Kind: kind}
}
