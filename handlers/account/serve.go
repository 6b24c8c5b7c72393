package account

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/nats-io/nats.go"

	"pocketcoder/handlers"
)

// OfAccount asks for what belongs to an account.
type OfAccount struct {
	Account string `json:"account"`
}

// Serve takes commands about accounts over NATS until ctx ends, in the name of actor.
func (a *Accounts) Serve(ctx context.Context, nc *nats.Conn, actor string, log *slog.Logger) error {
	return a.commands().Serve(ctx, nc, actor, log)
}

func (a *Accounts) commands() handlers.Commands {
	return handlers.Commands{
		"user.add":    handlers.CommandOf(func(c *CreateAccount, actor string) { c.Actor = actor }, a.add),
		"user.update": handlers.CommandOf(func(c *UpdateAccount, actor string) { c.Actor = actor }, handlers.SeqOnly(a.UpdateAccount)),
		"user.passwd": handlers.CommandOf(func(c *SetPassword, actor string) { c.Actor = actor }, handlers.SeqOnly(a.SetPassword)),
		"user.revoke": handlers.CommandOf(func(c *RevokeSession, actor string) { c.Actor = actor }, a.revoke),
		"user.list": handlers.CommandOf(func(*struct{}, string) {}, func(ctx context.Context, _ struct{}) (handlers.Accepted, error) {
			return result(a.List(ctx))
		}),
		"user.sessions": handlers.CommandOf(func(*OfAccount, string) {}, func(ctx context.Context, c OfAccount) (handlers.Accepted, error) {
			return result(a.Sessions(ctx, c.Account))
		}),
	}
}

func (a *Accounts) add(ctx context.Context, c CreateAccount) (handlers.Accepted, error) {
	id, seq, err := a.CreateAccount(ctx, c)
	return handlers.Accepted{ID: id, Seq: seq}, err
}

func (a *Accounts) revoke(ctx context.Context, c RevokeSession) (handlers.Accepted, error) {
	return handlers.Accepted{}, a.Revoke(ctx, c)
}

// result answers a command that asks.
func result[T any](v T, err error) (handlers.Accepted, error) {
	if err != nil {
		return handlers.Accepted{}, err
	}
	body, err := json.Marshal(v)
	return handlers.Accepted{Result: body}, err
}
