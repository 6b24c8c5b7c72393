package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// sandboxVerbs are the subcommands of sandbox; without one, it is a worker.
var sandboxVerbs = map[string]func(context.Context, environment, []string) error{
	"ps":      runPs,
	"logs":    runLogs,
	"kill":    runKill,
	"shell":   runOwnShell,
	"workers": runWorkers,
}

func runSandboxCommand(ctx context.Context, env environment, args []string) error {
	if len(args) > 0 {
		if run, ok := sandboxVerbs[args[0]]; ok {
			return run(ctx, env, args[1:])
		}
	}
	err := runSandbox(ctx, env, args)
	if i := slices.IndexFunc(args, func(a string) bool { return sandboxVerbs[a] != nil }); i > 0 && errors.Is(err, errUsage) {
		fmt.Fprintf(env.stderr, "sandbox: flags of %s stand behind it: pocketcoder sandbox %[1]s …\n", args[i])
	}
	return err
}

// oneID reads the one argument that names what is meant.
func oneID(env environment, command, what string, rest []string) (string, error) {
	if len(rest) == 0 {
		return "", wrongUsage(env, "%s: which %s? See pocketcoder %[1]s -h", command, what)
	}
	id, err := events.ParseID(rest[0])
	if err != nil {
		return "", wrongUsage(env, "%s: %v", command, err)
	}
	return id, nil
}

// tell gives a command that answers with a result, and reads that.
func (s *system) tell(ctx context.Context, name string, command, result any) error {
	a, err := handlers.Give(ctx, s.nc, name, command)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("read the answer to %s: %w", name, err)
	}
	return nil
}

// invalidUsage turns the refusal of what makes no sense into wrong usage.
func invalidUsage(env environment, command string, err error) error {
	if r := (handlers.Refused{}); errors.As(err, &r) && r.Code == handlers.Invalid {
		return wrongUsage(env, "%s: %s", command, r.Text)
	}
	return err
}
