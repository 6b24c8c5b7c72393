package cli

import (
	"context"
	"fmt"

	"pocketcoder/cmd/client"
	execs "pocketcoder/handlers/exec"
)

const killUsage = `pocketcoder sandbox kill EXEC: end a command that runs, or send all its processes another signal.

  pocketcoder sandbox kill 8f2k0x9c3v7m1q5
  pocketcoder sandbox kill 8f2k0x9c3v7m1q5 --signal KILL    if it ignores TERM
  pocketcoder sandbox kill 8f2k0x9c3v7m1q5 --signal STOP    and --signal CONT later

"pocketcoder sandbox ps" lists running commands. The log records that you sent the signal. Signals: TERM, INT, HUP, KILL, USR1, USR2, QUIT, STOP, CONT.
Exit status: 0 if it was sent; 1 if the command does not run or it failed, 2 for wrong usage.
`

func runKill(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "sandbox kill", killUsage)
	at := ServerFlags(fs, env)
	signal := fs.String("signal", "", "`signal` to send; default TERM, or HUP for a shell, because shells ignore TERM")
	exec, err := ParseID(fs, args, whichExecution)
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Signal(ctx, exec, *signal); err != nil {
		return invalidUsage(env, "sandbox kill", err)
	}
	if *signal == "" {
		fmt.Fprintln(env.Stderr, "signal sent to:", exec)
	} else {
		fmt.Fprintf(env.Stderr, "sent %s to %s\n", execs.SignalName(*signal), exec)
	}
	return nil
}
