package exec

import (
	"context"

	"pocketcoder/handlers"
	"pocketcoder/sandbox/wire"
)

// Commands returns the commands about executions for NATS.
func (x *Executions) Commands() handlers.Commands {
	return handlers.Commands{
		"exec.signal": handlers.CommandOf(func(c *Signal, actor string) { c.Actor = actor }, handlers.SeqOnly(x.Signal)),
		"exec.workers": handlers.QueryOf(func(ctx context.Context, _ struct{}) ([]wire.WorkerInfo, error) {
			return wire.Workers(ctx, x.Conn, x.Pool)
		}),
	}
}
