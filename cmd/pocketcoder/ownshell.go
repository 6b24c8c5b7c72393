package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/term"

	"pocketcoder/handlers"
	"pocketcoder/sandbox/wire"
)

const ownShellUsage = `pocketcoder sandbox shell CHAT: open a shell in the sandbox of the chat's commands.

  pocketcoder sandbox shell h2k0x9c3v7m1q5z
  pocketcoder sandbox shell h2k0x9c3v7m1q5z --private

The log records what the shell prints, with known secrets redacted, and you as its author. What you type is recorded only as the shell
shows it. With --private the log records the shell itself, its requests for hosts, the hosts it reached and its signals, but no
output. The shell ends with exit, Ctrl-D, this terminal or the chat. Output is not filtered, as with ssh.
Exit status: the shell's; 1 when it could not be opened, 2 for wrong usage.
`

func runOwnShell(ctx context.Context, env environment, args []string) (err error) {
	fs := newFlags(env, "sandbox shell", ownShellUsage)
	data := dataFlag(fs, env)
	private := fs.Bool("private", false, "do not record what it prints or changes")
	user := fs.String("user", "", "`id` of the account whose shell it is, which must see the chat: for \"attach\"; the operator's when empty")
	client := fs.String("client", "", "`pid` of the client of \"attach\" whose shell it is: for the key C-b c")
	stay := fs.Bool("stay", false, "when it fails, wait until the window is closed: for \"attach\"")
	rest, err := parse(fs, args, 1)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGTERM)
	defer stop()
	if *stay {
		defer func() { stays(ctx, env, err) }()
	}
	chat, err := oneID(env, "sandbox shell", "chat", rest)
	if err != nil {
		return err
	}
	if !env.interactive {
		return errors.New("sandbox shell: it needs a terminal; over SSH ask for one with: ssh -t")
	}
	if *client != "" {
		if *user, err = accountOfClient(ctx, dataDir(*data), *client); err != nil {
			return fmt.Errorf("sandbox shell: --client %q: %w", *client, err)
		}
	}
	s, err := connect(ctx, dataDir(*data))
	if err != nil {
		return err
	}
	defer s.close()
	r := wire.Request{Session: chat, Account: *user}
	if *private {
		r.Call = handlers.PrivateShell
	}
	result, err := s.ownShell(ctx, env, r)
	switch {
	case err != nil:
		return fmt.Errorf("sandbox shell: %w", err)
	case result.Reason != wire.Exited:
		return fmt.Errorf("sandbox shell: %s", endOf(result))
	case result.ExitCode != 0:
		return exitCode(result.ExitCode)
	}
	return nil
}

// stays lets the person read why there is no shell: a window ends with its program.
func stays(ctx context.Context, env environment, err error) {
	if err == nil || errors.As(err, new(exitCode)) {
		return
	}
	fmt.Fprintf(env.stderr, "%v\nC-b x closes the window\n", err)
	<-ctx.Done()
}

// accountOfClient is the account for which a client of the viewer was attached, empty for the operator.
func accountOfClient(ctx context.Context, data dataDir, client string) (string, error) {
	pid, err := strconv.Atoi(client)
	if err != nil {
		return "", err
	}
	v, err := openViewer(ctx, data)
	if err != nil {
		return "", err
	}
	return v.clientUser(ctx, pid)
}

func endOf(r wire.Result) string {
	if r.Error != "" {
		return visible(r.Error)
	}
	return "it was ended: " + reasonText(string(r.Reason))
}

// ownShell is one shell, at the terminal of this process. It is one to its end: whatever comes between, the terminal is given
// back as it was.
func (s *system) ownShell(ctx context.Context, env environment, r wire.Request) (wire.Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	terminal := int(os.Stdin.Fd())
	before, err := term.MakeRaw(terminal)
	if err != nil {
		return wire.Result{}, fmt.Errorf("make the terminal raw: %w", err)
	}
	defer term.Restore(terminal, before)
	input := make(chan wire.Input)
	go func() {
		defer stop() // the terminal is gone
		passTyped(ctx, env.stdin, input)
	}()
	go resized(ctx, env, terminal, input)
	r.Cwd, r.Terminal, r.Input = "/", window(env, terminal), input
	return wire.Call(ctx, s.nc, wire.PersonSubject, r, env.stdout, env.stderr)
}

// passTyped passes on what the person types, until they cannot any more.
func passTyped(ctx context.Context, from io.Reader, to chan<- wire.Input) {
	for {
		b := make([]byte, 4096)
		n, err := from.Read(b)
		if n > 0 && handOn(ctx, to, wire.Input{Data: b[:n]}) != nil || err != nil {
			return
		}
	}
}

// resized passes on the sizes of the window.
func resized(ctx context.Context, env environment, terminal int, to chan<- wire.Input) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	defer signal.Stop(changes)
	for {
		select {
		case <-changes:
			_ = handOn(ctx, to, wire.Input{Size: window(env, terminal)}) // it ends with ctx
		case <-ctx.Done():
			return
		}
	}
}

// window is the size of the terminal, and its kind; the size of the oldest ones when it does not say.
func window(env environment, terminal int) *wire.Terminal {
	cols, rows, err := term.GetSize(terminal)
	if err != nil {
		cols, rows = 80, 24
	}
	return &wire.Terminal{Rows: uint16(rows), Cols: uint16(cols), Kind: env.getenv("TERM")}
}
