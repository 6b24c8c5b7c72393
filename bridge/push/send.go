package push

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/project"
)

// SendNotice sends a notice to an account's devices, unless the account has disabled its type, is viewing its chat, or
// may not see it.
// It returns when the notifications are queued.
func (p *Push) SendNotice(ctx context.Context, user string, n events.Notice) error {
	n.Title, _ = p.shown(n.Title, maxTitle)
	n.Message, _ = p.shownLines(n.Message, maxShown)
	about := ofChat(n.Chat)
	if n.Chat == "" {
		about = events.Subject{Scope: events.ScopeUser, ID: user}
	} else if sees, err := p.sees(ctx, user, n.Chat); err != nil || !sees {
		return err
	}
	return p.notify(ctx, about, identify(events.NewID()), []string{user}, n, "")
}

const typeTest = "test"

// Test sends a test notification to one device of an account, whatever the account's rules are.
func (p *Push) Test(ctx context.Context, user, id string) error {
	d, active, err := p.device(ctx, id)
	if err != nil {
		return err
	}
	if !active || d.User != user {
		return handlers.Refused{Code: handlers.NotFound, Field: "device", Text: "there is no such active device"}
	}
	n := events.Notice{Type: typeTest, Title: "PocketCoder", Message: "This device gets notifications."}
	return p.queue(ctx, events.Subject{Scope: events.ScopeUser, ID: user}, identify(events.NewID()), d, n, "")
}

// sees reports whether an account may read a chat.
func (p *Push) sees(ctx context.Context, user, id string) (bool, error) {
	chat, found, err := p.Model.Chat(ctx, id)
	if err != nil || !found || chat.Removed {
		return false, err
	}
	reader, err := p.Accounts.Find(ctx, user)
	if err != nil || reader.Role == account.Agent {
		return err == nil, err
	}
	role, err := p.projects().RoleOf(ctx, user, chat.Project)
	return reader.Role == account.Admin || role != project.None && (chat.Shared || chat.User == user), err
}
