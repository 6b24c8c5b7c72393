package push

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// Tell sends a notice of somebody's own making to an account's devices, unless the account has turned its type off or looks at its
// chat just now. It returns once that is noted; the devices are told later.
func (p *Push) Tell(ctx context.Context, user string, n events.Notice) error {
	n.Title, _ = p.shown(n.Title, maxTitle)
	n.Message, _ = p.shown(n.Message, maxShown)
	about := ofChat(n.Chat)
	if n.Chat == "" {
		about = events.Subject{Scope: events.ScopeUser, ID: user}
	}
	return p.notify(ctx, about, identify(events.NewID()), []string{user}, n, "")
}

// typeTest is the type of what tells whether a device can be told anything.
const typeTest = "test"

// Test tells one device of an account something, whatever the account's rules say.
func (p *Push) Test(ctx context.Context, user, id string) error {
	d, active, err := p.device(ctx, id)
	if err != nil {
		return err
	}
	if !active || d.user != user {
		return handlers.Refused{Code: handlers.NotFound, Field: "device", Text: "there is no such active device"}
	}
	n := events.Notice{Type: typeTest, Title: "PocketCoder", Message: "This device gets notifications."}
	return p.queue(ctx, events.Subject{Scope: events.ScopeUser, ID: user}, identify(events.NewID()), d, n, "")
}
