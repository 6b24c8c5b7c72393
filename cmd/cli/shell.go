package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/viewer"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/sandbox/wire"
)

const ownShellUsage = `pocketcoder sandbox shell CHAT: open a shell in the sandbox of the chat's commands.

  pocketcoder sandbox shell h2k0x9c3v7m1q5z
  pocketcoder sandbox shell h2k0x9c3v7m1q5z --private

The log records what the shell prints, with known secrets redacted, and you as its author. What you type is recorded only as the shell
shows it. With --private the log records that the shell ran, its requests for hosts, the hosts that it reached and its signals,
but not its output. The shell ends with exit, Ctrl-D, this terminal or the chat. Its output goes to your terminal unfiltered, as with ssh.
Exit status: the shell's; 1 when it could not be opened, 2 for wrong usage.
`

func runOwnShell(ctx context.Context, env Environment, args []string) (err error) {
	fs := NewFlags(env, "sandbox shell", ownShellUsage)
	at := ServerFlags(fs, env)
	private := fs.Bool("private", false, "do not record its output and the files that it changes")
	// "attach" uses the internal flags.
	fs.StringVar(&at.Account, "user", "", internalFlag+"`id` of the account whose shell it is, which must see the chat; empty for the operator")
	pid := fs.String("client", "", internalFlag+"`pid` of the client of \"attach\" whose shell it is")
	stay := fs.Bool("stay", false, internalFlag+"when it fails, wait until the window is closed")
	id, err := ParseOne(fs, args, `which chat? "pocketcoder chats" lists them`)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGTERM)
	defer stop()
	if *stay {
		defer func() { waitInWindow(ctx, env, err) }()
	}
	chat, err := events.ParseID(id)
	if err != nil {
		return WrongUsage(env, "sandbox shell: %v", err)
	}
	if !env.Interactive {
		return errors.New("sandbox shell: it needs a terminal; over SSH ask for one with: ssh -t")
	}
	if *pid != "" {
		if at.Account, err = viewer.AccountOfClient(ctx, *at, *pid); err != nil {
			return fmt.Errorf("sandbox shell: --client %q: %w", *pid, err)
		}
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	ending, err := viewer.RunShell(ctx, s, viewer.Terminal{In: env.Stdin, Out: env.Stdout, Kind: env.Getenv("TERM")},
		client.Shell{Chat: chat, Private: *private})
	switch {
	case err != nil:
		return fmt.Errorf("sandbox shell: %w", err)
	case ending.Reason != string(wire.Exited):
		return fmt.Errorf("sandbox shell: %s", shellEnd(ending))
	case ending.ExitCode != 0:
		return ExitCode(ending.ExitCode)
	}
	return nil
}

// waitInWindow shows an error and waits, because the window of a program closes when the program ends.
func waitInWindow(ctx context.Context, env Environment, err error) {
	if err == nil || errors.As(err, new(ExitCode)) {
		return
	}
	fmt.Fprintf(env.Stderr, "%v\nC-b x closes the window\n", err)
	<-ctx.Done()
}

func shellEnd(r client.ShellEnding) string {
	if r.Error != "" {
		return display.Exact(r.Error)
	}
	return "it was ended: " + render.ReasonText(r.Reason)
}
