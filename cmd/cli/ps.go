package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
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
	at := ServerFlags(fs, env)
	all := fs.Bool("all", false, "list finished commands too")
	limit := fs.Int("limit", 50, "with --all: maximum number of commands")
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	if *limit < 1 || *limit > 1000 {
		return WrongUsage(env, "sandbox ps: --limit must be 1 to 1000, got %d", *limit)
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	empty := "no command is running; --all lists ended ones too"
	of := client.Select{Filter: `status = "executing"`, Sort: "position"}
	if *all {
		empty, of = "nothing was run yet", client.Select{Sort: "-position", Limit: *limit, Fields: withoutOutputs}
	}
	runs, err := client.List[projections.ShownExecution](ctx, s, "executions", of)
	if err != nil {
		return err
	}
	return PrintList(env, *asJSON, runs, empty, "EXEC\tCHAT\tSTARTED\tSTATUS\tKIND\tISOLATION\tWORKER\tCOMMAND",
		func(x projections.ShownExecution) []string {
			status := x.Status
			if status == events.ExecutionFailed {
				status = fmt.Sprintf("exit %d", x.ExitCode)
			}
			return []string{
				x.ID, x.Chat, display.LocalTime(cmp.Or(x.Started, x.Finished)), display.OneLine(status, 20), executionKind(x),
				cmp.Or(display.OneLine(x.Isolation, 12), "-"), cmp.Or(display.OneLine(x.Worker, 40), "-"),
				display.OneLine(x.Text, 60),
			}
		})
}

// withoutOutputs are the fields of an execution but its outputs, which are many megabytes of many executions.
var withoutOutputs = strings.Join(slices.DeleteFunc(append(store.Columns[projections.Execution](), "text"),
	func(name string) bool { return name == "outputs" }), ",")

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
	at := ServerFlags(fs, env)
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	workers, err := client.Read[[]wire.WorkerInfo](ctx, s, "/api/pocketcoder/sandbox/workers")
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
