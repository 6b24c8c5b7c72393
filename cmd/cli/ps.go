package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/sandbox/wire"
)

const psUsage = `pocketcoder sandbox ps: the commands that run now, in all chats.

  pocketcoder sandbox ps
  pocketcoder sandbox ps --all --limit 20    finished commands too, the newest first

KIND is command, background (started with "detach") or shell (opened by a person). ISOLATION is the isolation level.
Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func runPs(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "sandbox ps", psUsage)
	data := DataFlag(fs, env)
	all := fs.Bool("all", false, "list finished commands too")
	limit := fs.Int("limit", 50, "with --all: maximum number of commands")
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	if *limit < 1 || *limit > 1000 {
		return WrongUsage(env, "sandbox ps: --limit must be 1 to 1000, got %d", *limit)
	}
	s, err := client.Connect(ctx, datadir.Dir(*data))
	if err != nil {
		return err
	}
	defer s.Close()
	name, empty := "running", "no command is running; --all lists ended ones too"
	if *all {
		name, empty = "latest", "nothing was run yet"
	}
	var runs []projections.ShownExecution
	if err := s.Query(ctx, name, map[string]any{"limit": *limit}, &runs); err != nil {
		return err
	}
	return PrintList(env, *asJSON, runs, empty, "EXEC\tCHAT\tSTARTED\tSTATUS\tKIND\tISOLATION\tWORKER\tCOMMAND",
		func(x projections.ShownExecution) []string {
			status := x.Status
			if status == events.ExecutionFailed {
				status = fmt.Sprintf("exit %d", x.ExitCode)
			}
			return []string{
				x.ID, x.Chat, printable.LocalTime(cmp.Or(x.Started, x.Finished)), printable.OneLine(status, 20), executionKind(x),
				cmp.Or(printable.OneLine(x.Isolation, 12), "-"), cmp.Or(printable.OneLine(x.Worker, 40), "-"),
				printable.OneLine(x.Text, 60),
			}
		})
}

// executionKind describes an execution for people.
func executionKind(x projections.ShownExecution) string {
	switch {
	case x.Private:
		return "shell, private"
	case x.Terminal:
		return "shell"
	case x.Detached:
		return "background"
	}
	return "command"
}

const sandboxWorkersUsage = `pocketcoder sandbox workers: list sandbox workers, their isolation level and their load.

  pocketcoder sandbox workers

REASON says why a worker has its isolation level. "pocketcoder delegates" lists the chats to which assistants delegate work.

Exit status: 0; 1 when it failed or no worker answers, 2 for wrong usage.
`

func runSandboxWorkers(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "sandbox workers", sandboxWorkersUsage)
	data := DataFlag(fs, env)
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	s, err := client.Connect(ctx, datadir.Dir(*data))
	if err != nil {
		return err
	}
	defer s.Close()
	workers, err := client.Call[[]wire.WorkerInfo](ctx, s, "exec.workers", struct{}{})
	if err != nil {
		return err
	}
	if len(workers) == 0 {
		return errors.New("no worker answers, so no command can run")
	}
	return PrintList(env, *asJSON, workers, "", "WORKER\tISOLATION\tRUNNING\tWORKSPACE\tVERSION\tREASON",
		func(w wire.WorkerInfo) []string {
			load := fmt.Sprint(w.Running)
			if w.Capacity > 0 {
				load += fmt.Sprintf(" of %d", w.Capacity)
			}
			return []string{display.Exact(w.Name), display.Exact(w.Isolation), load, display.Exact(w.Workspace),
				display.Exact(w.Version), display.Exact(w.Reason)}
		})
}
