package handlers

import (
	"context"

	"github.com/nats-io/nats.go"

	"pocketcoder/sandbox/wire"
)

// commands is every command about executions.
func (x *Exec) commands() Commands {
	return Commands{
		"exec.signal":  CommandOf(func(c *SignalExecution, actor string) { c.Actor = actor }, SeqOnly(x.Signal)),
		"exec.workers": CommandOf(unnamed[struct{}], result(x.workers)),
	}
}

// workers are those of the pool that answer just now.
func (x *Exec) workers(ctx context.Context, _ struct{}) ([]wire.WorkerInfo, error) {
	return wire.Workers(ctx, x.Conn, x.Pool)
}

// Serve takes the commands of Exec over NATS until ctx ends.
func (x *Exec) Serve(ctx context.Context, nc *nats.Conn, actor string) error {
	return x.commands().Serve(ctx, nc, actor, x.Log)
}
