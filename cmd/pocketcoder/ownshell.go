package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

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
	pid := fs.String("client", "", "`pid` of the client of \"attach\" whose shell it is: for the key C-b c")
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
	if *pid != "" {
		if *user, err = accountOfClient(ctx, dataDir(*data), *pid); err != nil {
			return fmt.Errorf("sandbox shell: --client %q: %w", *pid, err)
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
	result, err := runShell(ctx, s.nc, shellTerminal{in: env.stdin, out: env.stdout, err: env.stderr, kind: env.getenv("TERM")}, r)
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

func endOf(r wire.Result) string {
	if r.Error != "" {
		return visible(r.Error)
	}
	return "it was ended: " + reasonText(string(r.Reason))
}
