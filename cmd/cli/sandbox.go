package cli

import (
	"context"
	"slices"
	"strings"
)

var sandboxVerbs = map[string]func(context.Context, Environment, []string) error{
	"ps":      runPs,
	"logs":    runLogs,
	"kill":    runKill,
	"shell":   runOwnShell,
	"workers": runSandboxWorkers,
}

const sandboxUsage = `pocketcoder sandbox: inspect running commands.

  pocketcoder sandbox ps            list running commands; --all lists finished ones too
  pocketcoder sandbox logs EXEC     print the output of a command; -f follows it
  pocketcoder sandbox kill EXEC     end a command, or send it another signal
  pocketcoder sandbox shell CHAT    open a shell in the sandbox of a chat's commands
  pocketcoder sandbox workers       list sandbox workers, their isolation level and their load

Each explains itself with -h.
`

// Sandbox is the command sandbox.
func Sandbox(ctx context.Context, env Environment, args []string) error {
	if len(args) > 0 {
		if run, ok := sandboxVerbs[args[0]]; ok {
			return run(ctx, env, args[1:])
		}
	}
	if i := slices.IndexFunc(args, func(a string) bool { return sandboxVerbs[a] != nil }); i > 0 {
		return WrongUsage(env, "sandbox: flags of %s follow it: pocketcoder sandbox %[1]s …", args[i])
	}
	help := slices.ContainsFunc(args, func(a string) bool {
		return strings.Trim(a, "-") == "h" || strings.Trim(a, "-") == "help"
	})
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && !help {
		return Worker(ctx, env, args) // an earlier name of "pocketcoder worker"
	}
	if len(args) > 0 && !help {
		return NoVerb(env, "sandbox", args[0], sandboxVerbs)
	}
	if _, err := Parse(NewFlags(env, "sandbox", sandboxUsage), args, 0); err != nil {
		return err
	}
	return WrongUsage(env, "sandbox: which of ps, logs, kill, shell and workers?")
}

// whichExecution is the error if the id of the execution is missing.
const whichExecution = `which execution? "pocketcoder sandbox ps --all" lists them`
