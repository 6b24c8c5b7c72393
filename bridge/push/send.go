package push

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"pocketcoder/bridge/push/service"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
)

// SendNotice sends a notice to an account's devices, unless the account has disabled its type or is viewing its chat.
// It returns when the notifications are queued.
func (p *Push) SendNotice(ctx context.Context, user string, n events.Notice) error {
	n.Title, _ = p.shown(n.Title, maxTitle)
	n.Message, _ = p.shownLines(n.Message, maxShown)
	about := ofChat(n.Chat)
	if n.Chat == "" {
		about = events.Subject{Scope: events.ScopeUser, ID: user}
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

// TestDevice is the command that tests a device and waits for the result, which is a TestResult.
type TestDevice struct {
	handlers.Command
	Device string `json:"device"`
}

type TestResult struct {
	Sent   bool   `json:"sent"`
	Failed string `json:"failed,omitempty"` // the reason; empty while it is still being tried
	Host   string `json:"host,omitempty"`   // of the push service
}

// Commands returns the commands about devices for NATS.
func (p *Push) Commands() handlers.Commands {
	return handlers.Commands{"device.test": handlers.CommandOf(func(c *TestDevice, actor string) { c.Actor = actor },
		p.testDevice)}
}

// testTime is how long a test waits for the push service. Further tries are made afterwards.
const testTime = 15 * time.Second

func (p *Push) testDevice(ctx context.Context, c TestDevice) (handlers.Accepted, error) {
	if err := p.Model.CatchUp(ctx); err != nil { // the device may have changed a moment ago
		return handlers.Accepted{}, err
	}
	d, active, err := p.device(ctx, c.Device)
	if err != nil {
		return handlers.Accepted{}, err
	}
	if !active {
		return handlers.Accepted{}, handlers.Refused{Code: handlers.NotFound, Field: "device",
			Text: fmt.Sprintf("There is no active device %s.", c.Device)}
	}
	after, err := p.Log.Last(ctx)
	if err != nil {
		return handlers.Accepted{}, err
	}
	if err := p.Test(ctx, d.User, d.ID); err != nil {
		return handlers.Accepted{}, err
	}
	result, err := p.awaitTest(ctx, d, after)
	if err != nil {
		return handlers.Accepted{}, err
	}
	body, err := json.Marshal(result)
	return handlers.Accepted{Result: body}, err
}

// awaitTest waits for the result of a test after a sequence, for at most testTime.
func (p *Push) awaitTest(ctx context.Context, d service.Device, after uint64) (result TestResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	result.Host = p.Sender.Host(d)
	err = p.Log.Read(ctx, after, []string{events.UserSubject(d.User, "notification.*")}, func(b log.Batch) error {
		for _, e := range b.Events {
			switch n, _ := events.Decode(e); n := n.(type) {
			case events.NotificationSent:
				result.Sent = n.Device == d.ID
			case events.NotificationFailed:
				if n.Device == d.ID {
					result.Failed = n.Reason
				}
			}
			if result.Sent || result.Failed != "" {
				return events.ErrStop
			}
		}
		return nil
	})
	if ctx.Err() != nil { // it is still being tried
		return result, nil
	}
	return result, err
}
