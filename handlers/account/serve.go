package account

import (
	"context"

	"pocketcoder/handlers"
)

type AccountQuery struct {
	Account string `json:"account"`
}

// Commands returns the commands about accounts for NATS.
func (a *Accounts) Commands() handlers.Commands {
	return handlers.Commands{
		"user.add":      handlers.CommandOf(func(c *CreateAccount, actor string) { c.Actor = actor }, handlers.Created(a.CreateAccount)),
		"user.update":   handlers.CommandOf(func(c *UpdateAccount, actor string) { c.Actor = actor }, handlers.SeqOnly(a.UpdateAccount)),
		"user.passwd":   handlers.CommandOf(func(c *SetPassword, actor string) { c.Actor = actor }, handlers.SeqOnly(a.SetPassword)),
		"user.revoke":   handlers.CommandOf(func(c *RevokeSession, actor string) { c.Actor = actor }, a.revoke),
		"user.list":     handlers.QueryOf(func(ctx context.Context, _ struct{}) ([]Account, error) { return a.List(ctx) }),
		"user.sessions": handlers.QueryOf(func(ctx context.Context, c AccountQuery) ([]Session, error) { return a.Sessions(ctx, c.Account) }),
	}
}

func (a *Accounts) revoke(ctx context.Context, c RevokeSession) (handlers.Accepted, error) {
	return handlers.Accepted{}, a.Revoke(ctx, c)
}
