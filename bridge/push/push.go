// Package push notifies people on their devices when they are needed or a turn has ended: over UnifiedPush and ntfy,
// Web Push, and a relay to Firebase.
//
// A durable consumer follows the log. A person is needed for a permission request that the policy left to one, for a
// question, and for an MCP server that waits for approval. For each device the consumer appends notification.queued.
// An outbox.Loop sends it with a Sender, and appends notification.sent or notification.failed. A withdrawal is sent
// once, and not recorded: a kill may lose it, and the buttons then do nothing.
//
// Promises:
//   - A device is notified of a request once, also after a redelivery or a restart. It is not notified while its owner
//     looks at the chat, if the owner has disabled the type, or once the request is decided. When the owner leaves the
//     chat, notifications of requests that are still pending are sent.
//   - Only a crash between sending and recording sends twice. Both have the same sequence id (ntfy) or topic (Web
//     Push), so the second replaces the first.
//   - No device waits for another, and no decision waits for any device. The notification of a request that was
//     decided elsewhere is withdrawn.
//   - A button decides one request one way, once, within 15 minutes, in the name of the device's owner. Only the
//     SHA-256 of its token is stored. Approve is offered only where the notification shows all that an approval would
//     allow.
//   - An endpoint is reached over https at a public address or not at all. The address is checked when it is dialled,
//     and redirects are not followed. No event and no log line holds an endpoint or a token.
//
// It must not know HTTP routes or how OpenCode is spoken to.
package push

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/opencode"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission"
	records "pocketcoder/handlers/record"
	"pocketcoder/projections"
)

// Push sends notifications. All exported fields must be set.
type Push struct {
	Log      *log.Log
	Secrets  *secret.Store
	Model    *projections.Model
	Accounts *account.Accounts
	Records  *records.Records
	Decide   func(context.Context, permission.Decide) (uint64, error) // decides a permission request
	Logger   *slog.Logger

	Sender     Sender
	Present    func(user, chat string) bool // reports whether an account is viewing a chat
	RetryAfter []time.Duration              // pauses between tries
	AwayAfter  time.Duration                // after this time of absence, an account has left the chat

	withheld withheldNotifications
	queueing sync.Mutex // serializes queue
	oldest   string     // when the oldest notification was queued that is sent

	busy        sync.WaitGroup
	mu          sync.Mutex
	withdrawn   map[string]time.Time // when each notification to a device was withdrawn, by its id: each is withdrawn once
	withdrawing map[string]int       // withdrawals that are being sent, by device
}

// Consumer is the name of the durable consumer.
const Consumer = "push"

// maxTurnAge is the maximal age of the end of a turn about which people are notified.
const maxTurnAge = time.Hour

// maxWithdrawalAge is the maximal age of an event that withdraws a notification. Withdrawals are not recorded. If
// decisions are delivered again, only the withdrawals of the last hour are repeated.
const maxWithdrawalAge = time.Hour

// filters select the events that need a person or end that need, and those that end a turn.
var filters = []string{
	events.ChatSubject("*", "permission.*"), events.ChatOpenCodeSubject("*", events.PermissionReplied),
	events.ChatSubject("*", "question.*"), events.ChatOpenCodeSubject("*", "question.*"),
	events.ChatOpenCodeSubject("*", sessionStatus), events.ChatOpenCodeSubject("*", sessionError),
	events.ChatSubject("*", events.TurnLost{}.Kind()), events.ChatSubject("*", events.MessageFailed{}.Kind()),
	events.ConfigSubject(mcpserver.Collection, "*", "*"),
	events.ConfigSubject(model.Providers, "*", events.Saved{}.Kind()),
}

// The OpenCode events after which a turn may have ended: session.idle always follows a session.status.
const (
	sessionStatus = "session.status"
	sessionError  = "session.error"
)

// Run follows the log until ctx ends. The read models must have caught up. If the progress of the consumer is lost, Run
// begins with the events that follow: watchPresence finds the requests that are still pending.
func (p *Push) Run(ctx context.Context) error {
	seen := p.Model.Seq() // before watchPresence
	ctx, cancel := context.WithCancel(ctx)
	defer p.busy.Wait()
	defer cancel()
	p.withdrawn, p.withdrawing = map[string]time.Time{}, map[string]int{}
	p.oldest = events.FormatTime(time.Now().Add(-maxAge))
	loop := outbox.Loop[projections.Notification]{Name: "notifications", Log: p.Log, Model: p.Model, Logger: p.Logger,
		Pauses: p.RetryAfter, Open: p.open, Plan: outbox.InOrder[projections.Notification], Try: p.try, Most: maxQueue,
		Drop: p.drop}
	p.busy.Go(func() { _ = loop.Run(ctx) }) // until ctx ends
	p.busy.Go(func() { p.sweep(ctx) })
	p.busy.Go(func() { p.watchPresence(ctx) })
	ctx = log.ConsumeAfter(ctx, func(context.Context) (uint64, error) { return seen, nil })
	return p.Log.ConsumeAll(ctx, Consumer, filters, p.react, func(e events.Event, err error) {
		p.Logger.Error("push", "seq", e.Seq, "err", err)
	})
}

func (p *Push) react(ctx context.Context, e events.Event) error {
	if err := p.Model.Wait(ctx, e.Seq); err != nil {
		return err
	}
	d, err := events.Decode(e)
	if err != nil {
		return nil // a retry would not make it readable
	}
	chat := e.Subject.ID
	switch d := d.(type) {
	case events.PermissionReferred:
		return p.notifyRequest(ctx, e.ID, events.Notice{Chat: chat, Permission: d.Permission})
	case events.PermissionDecided:
		return p.withdrawDecided(ctx, e, events.Notice{Chat: chat, Permission: d.Permission})
	case events.PermissionExpired:
		return p.withdrawDecided(ctx, e, events.Notice{Chat: chat, Permission: d.Permission})
	case events.QuestionRequested:
		return p.notifyRequest(ctx, e.ID, events.Notice{Chat: chat, Question: d.Question})
	case events.QuestionAnswered:
		return p.withdrawDecided(ctx, e, events.Notice{Chat: chat, Question: d.Question})
	case events.QuestionExpired:
		return p.withdrawDecided(ctx, e, events.Notice{Chat: chat, Question: d.Question})
	case events.TurnLost, events.MessageFailed:
		return p.notifyEnded(ctx, e)
	case events.Saved:
		if e.Subject.Collection == model.Providers {
			return p.notifyKey(ctx, e, d)
		}
		return p.notifyServer(ctx, e)
	case events.Deleted:
		return p.notifyServer(ctx, e)
	case events.OpenCode:
		return p.reactOpenCode(ctx, e, d)
	}
	return nil
}

func (p *Push) reactOpenCode(ctx context.Context, e events.Event, d events.OpenCode) error {
	body, err := opencode.Decode(d)
	if err != nil {
		return nil
	}
	chat := e.Subject.ID
	switch b := body.(type) {
	case events.QuestionRequest:
		return p.notifyRequest(ctx, e.ID, events.Notice{Chat: chat, Question: b.ID})
	case opencode.QuestionReplied:
		return p.withdrawDecided(ctx, e, events.Notice{Chat: chat, Question: b.RequestID})
	case opencode.PermissionReplied:
		return p.withdrawDecided(ctx, e, events.Notice{Chat: chat, Permission: b.RequestID})
	case opencode.SessionError:
		return p.notifyEnded(ctx, e)
	case opencode.SessionStatus:
		if b.Status.Type == "idle" {
			return p.notifyEnded(ctx, e)
		}
	}
	return nil
}
