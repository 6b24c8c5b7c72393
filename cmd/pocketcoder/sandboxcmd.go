package main

import (
	"context"
	"slices"
	"strings"

	"pocketcoder/events"
)

// sandboxVerbs are the subcommands of sandbox.
var sandboxVerbs = map[string]func(context.Context, environment, []string) error{
	"ps":      runPs,
	"logs":    runLogs,
	"kill":    runKill,
	"shell":   runOwnShell,
	"workers": runWorkers,
}

const sandboxUsage = `pocketcoder sandbox: inspect running commands.

  pocketcoder sandbox ps            list running commands; --all lists finished ones too
  pocketcoder sandbox logs EXEC     print the output of a command; -f follows it
  pocketcoder sandbox kill EXEC     end a command, or send it another signal
  pocketcoder sandbox shell CHAT    open a shell in the sandbox of a chat's commands
  pocketcoder sandbox workers       list workers, their isolation level and their load

Each explains itself with -h.
`

func runSandboxCommand(ctx context.Context, env environment, args []string) error {
	if len(args) > 0 {
		if run, ok := sandboxVerbs[args[0]]; ok {
			return run(ctx, env, args[1:])
		}
	}
	if i := slices.IndexFunc(args, func(a string) bool { return sandboxVerbs[a] != nil }); i > 0 {
		return wrongUsage(env, "sandbox: flags of %s follow it: pocketcoder sandbox %[1]s …", args[i])
	}
	help := slices.ContainsFunc(args, func(a string) bool { return strings.Trim(a, "-") == "h" || strings.Trim(a, "-") == "help" })
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && !help {
		return runWorker(ctx, env, args) // as a worker was called before
	}
	if _, err := parse(newFlags(env, "sandbox", sandboxUsage), args, 0); err != nil {
		return err
	}
	return wrongUsage(env, "sandbox: which of ps, logs, kill, shell and workers?")
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
