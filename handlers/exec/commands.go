package exec

import (
	"context"

	"github.com/nats-io/nats.go"

	"pocketcoder/handlers"
	"pocketcoder/sandbox/wire"
)

// Commands are the commands about executions that can be given over NATS.
func (x *Executions) Commands() handlers.Commands {
	return handlers.Commands{
		"exec.signal":  handlers.CommandOf(func(c *Signal, actor string) { c.Actor = actor }, handlers.SeqOnly(x.Signal)),
		"exec.workers": handlers.QueryOf(x.workers),
	}
}

// workers are those of the pool that answer just now.
func (x *Executions) workers(ctx context.Context, _ struct{}) ([]wire.WorkerInfo, error) {
	return wire.Workers(ctx, x.Conn, x.Pool)
}

// Serve takes the commands of Exec over NATS until ctx ends.
func (x *Executions) Serve(ctx context.Context, nc *nats.Conn, actor string) error {
	return x.Commands().Serve(ctx, nc, actor, x.Logger)
}
