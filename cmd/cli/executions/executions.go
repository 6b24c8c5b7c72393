// Package executions holds the commands of "pocketcoder sandbox": they list running commands, print their output,
// signal them, and open a shell beside them.
//
// It must not know how commands are isolated or run.
package executions

import (
	"context"
	"slices"
	"strings"

	"pocketcoder/cmd/cli"
)

var sandboxVerbs = map[string]func(context.Context, cli.Environment, []string) error{
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
  pocketcoder sandbox workers       list sandbox workers, their isolation level and their load

Each explains itself with -h.
`

func Run(ctx context.Context, env cli.Environment, args []string) error {
	if len(args) > 0 {
		if run, ok := sandboxVerbs[args[0]]; ok {
			return run(ctx, env, args[1:])
		}
	}
	if i := slices.IndexFunc(args, func(a string) bool { return sandboxVerbs[a] != nil }); i > 0 {
		return cli.WrongUsage(env, "sandbox: flags of %s follow it: pocketcoder sandbox %[1]s …", args[i])
	}
	help := slices.ContainsFunc(args, func(a string) bool {
		return strings.Trim(a, "-") == "h" || strings.Trim(a, "-") == "help"
	})
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && !help {
		return cli.Worker(ctx, env, args) // an earlier name of "pocketcoder worker"
	}
	if len(args) > 0 && !help {
		return cli.NoVerb(env, "sandbox", args[0], sandboxVerbs)
	}
	if _, err := cli.Parse(cli.NewFlags(env, "sandbox", sandboxUsage), args, 0); err != nil {
		return err
	}
	return cli.WrongUsage(env, "sandbox: which of ps, logs, kill, shell and workers?")
}

// whichExecution is the error if the id of the execution is missing.
const whichExecution = `which execution? "pocketcoder sandbox ps --all" lists them`
