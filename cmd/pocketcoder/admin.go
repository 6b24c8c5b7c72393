package main

import (
	"context"
)

// adminCommands are for the operator of an installation.
var adminCommands = map[string]func(context.Context, environment, []string) error{
	"rebuild":      runRebuild,
	"nats-context": runNATSContext,
	"nats-config":  runNATSConfig,
}

const adminUsage = `pocketcoder admin: maintain an installation.

  pocketcoder admin rebuild        delete the read models and compute them again from the log
  pocketcoder admin nats-context   let the nats CLI read the log
  pocketcoder admin nats-config    print the configuration of an external NATS server

Each explains itself with -h.
`

func runAdmin(ctx context.Context, env environment, args []string) error {
	if len(args) > 0 {
		if run, ok := adminCommands[args[0]]; ok {
			return run(ctx, env, args[1:])
		}
	}
	if _, err := parse(newFlags(env, "admin", adminUsage), args, 0); err != nil {
		return err
	}
	return wrongUsage(env, "admin: which of rebuild, nats-context and nats-config?")
}
