// Package admin holds the commands that manage an installation: accounts, phones, SSH keys, budgets, the read models,
// access to NATS, and the check of everything that it needs.
//
// It must not know how the system implements these commands.
package admin

import (
	"context"
	"strings"

	"pocketcoder/cmd/cli"
)

var adminCommands = map[string]func(context.Context, cli.Environment, []string) error{
	"rebuild":      runRebuild,
	"erase":        runErase,
	"nats-context": runNATSContext,
	"nats-config":  runNATSConfig,
}

const adminUsage = `pocketcoder admin: maintain an installation.

  pocketcoder admin rebuild        delete the read models and compute them again from the log
  pocketcoder admin erase CHAT     remove the text of a chat from the log, while nothing runs
  pocketcoder admin nats-context   let the nats CLI read the log
  pocketcoder admin nats-config    print the configuration of an external NATS server

Each explains itself with -h.
`

func Run(ctx context.Context, env cli.Environment, args []string) error {
	if len(args) > 0 {
		if run, ok := adminCommands[args[0]]; ok {
			return run(ctx, env, args[1:])
		}
		if !strings.HasPrefix(args[0], "-") {
			return cli.NoVerb(env, "admin", args[0], adminCommands)
		}
	}
	if _, err := cli.Parse(cli.NewFlags(env, "admin", adminUsage), args, 0); err != nil {
		return err
	}
	return cli.WrongUsage(env, "admin: name a command: rebuild, erase, nats-context or nats-config")
}
