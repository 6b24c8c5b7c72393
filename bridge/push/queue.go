package push

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers"
	records "pocketcoder/handlers/record"
	"pocketcoder/projections"
)

const (
	maxQueue = 50             // notifications that wait for a device
	maxAge   = 24 * time.Hour // a new process sends no older notification, and does not notify of older requests
)

// queue appends notification.queued, unless the notification was queued before.
func (p *Push) queue(ctx context.Context, about events.Subject, id string, d Device, n events.Notice,
	cause string) error {
	p.queueing.Lock()
	defer p.queueing.Unlock()
	if err := p.Model.CatchUp(ctx); err != nil {
		return err
	}
	if _, known, err := p.Model.NotificationTo(ctx, id, d.ID); err != nil || known {
		return err
	}
	return p.record(ctx, about, identify(events.NotificationQueued{}.Kind(), id, d.ID), cause,
		events.NotificationQueued{Notification: id, Device: d.ID, User: d.User, Notice: n})
}

// record appends an event about a notification, and returns once the read models include it. Its id is derived from its
// content, so the server drops a second one.
func (p *Push) record(ctx context.Context, about events.Subject, id, cause string, d events.Data) (err error) {
	var e events.Event
	switch about.Scope {
	case events.ScopeConfig:
		e, err = events.NewConfig(about.Collection, about.ID, events.ActorSystem, d)
	case events.ScopeUser:
		e, err = events.NewUser(about.ID, events.ActorSystem, d)
	default:
		e, err = events.New(about.ID, events.ActorSystem, d)
	}
	if err != nil {
		return err
	}
	e.ID = id
	seq, err := p.Log.Append(ctx, e.CausedBy(cause))
	if err != nil {
		return fmt.Errorf("record notification: %w", err)
	}
	return p.Model.Wait(ctx, seq)
}

// withdrawal removes a notification of a request that was decided from the device to which it was sent.
type withdrawal struct {
	notice events.Notice
	event  events.Event // the decision
	done   bool         // so that OpenCode's event about the decision does not withdraw it again
}

// delivery is a notification to send or to withdraw.
type delivery struct {
	projections.Notification
	withdrawal *withdrawal // nil to send it
}

// withdraw withdraws a notification, because of e, from the devices to which it was sent or for which it is queued.
func (p *Push) withdraw(ctx context.Context, e events.Event, id string, n events.Notice) error {
	if time.Since(e.Time) > maxWithdrawalAge {
		return nil
	}
	all, err := p.Model.Notifications(ctx, id)
	if err != nil {
		return err
	}
	p.mu.Lock()
	for _, sent := range all {
		if _, known := p.withdrawals[sent.ID]; !known && sent.State != projections.NotificationFailed {
			p.withdrawals[sent.ID] = delivery{sent, &withdrawal{notice: n, event: e}}
		}
	}
	p.mu.Unlock()
	select {
	case p.woken <- struct{}{}:
	default:
	}
	return nil
}

// open lists the notifications to send and to withdraw.
func (p *Push) open(ctx context.Context) (open []outbox.Effect[delivery], next time.Duration, err error) {
	all, err := p.Model.OpenNotifications(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, n := range all {
		open = append(open, outbox.Effect[delivery]{Key: n.ID, Target: n.Device, Of: delivery{n, nil}})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, w := range p.withdrawals {
		if time.Since(w.withdrawal.event.Time) > maxWithdrawalAge {
			delete(p.withdrawals, id)
		} else if !w.withdrawal.done {
			w.Position = int64(w.withdrawal.event.Seq)
			open = append(open, outbox.Effect[delivery]{Key: "withdraw " + id, Target: w.Device, Of: w})
		}
	}
	slices.SortFunc(open, func(a, b outbox.Effect[delivery]) int { return cmp.Compare(a.Of.Position, b.Of.Position) })
	return open, time.Hour, nil
}

// try sends or withdraws a notification, and records the outcome unless another try may help.
func (p *Push) try(ctx context.Context, e outbox.Effect[delivery]) error {
	if e.Of.withdrawal != nil {
		return p.sendWithdrawal(ctx, e.Of)
	}
	n, attempts := e.Of.Notification, e.Tried+1
	d, err := p.send(ctx, n)
	if err == nil {
		return p.recordOutcome(ctx, n, events.NotificationSent{Notification: n.Notification, Device: d.ID,
			Service: d.Service, Host: p.Sender.Host(d), Attempts: attempts})
	}
	if !errors.As(err, new(permanentError)) && (attempts <= len(p.RetryAfter) || ctx.Err() != nil) {
		return err
	}
	return p.fail(ctx, n, d, attempts, err)
}

// send sends a notification once, if its device is active and its request is pending.
func (p *Push) send(ctx context.Context, n projections.Notification) (Device, error) {
	d, active, err := p.device(ctx, n.Device)
	if err != nil {
		return d, err
	}
	if !active {
		return Device{ID: n.Device}, permanentError{Reason: "the device is not active any more"}
	}
	if n.Created < p.oldest {
		return d, permanentError{Reason: "it could not be sent within a day"}
	}
	var notice events.Notice
	if err := json.Unmarshal([]byte(n.Notice), &notice); err != nil {
		return d, permanentError{Reason: "read the notice: " + err.Error()}
	}
	waiting, err := p.isPending(ctx, notice)
	if err != nil {
		return d, err
	}
	if !waiting {
		return d, permanentError{Reason: "it was decided before it could be sent"}
	}
	buttons, err := p.buttons(ctx, d, notice)
	if err != nil {
		return d, err
	}
	patient, cancel := outbox.Patient(ctx)
	defer cancel()
	return d, p.Sender.Send(patient, d, Message{ID: n.Notification, Notice: notice, Buttons: buttons})
}

// sendWithdrawal withdraws a notification from a device. A failure has no consequence, because the buttons of a decided
// request do nothing.
func (p *Push) sendWithdrawal(ctx context.Context, w delivery) error {
	defer p.endWithdrawal(w.withdrawal)
	now, _, err := p.Model.NotificationTo(ctx, w.Notification.Notification, w.Device)
	if err != nil || now.State != projections.NotificationSent {
		return nil
	}
	d, active, err := p.device(ctx, w.Device)
	if err != nil || !active {
		return nil
	}
	message := Message{ID: now.Notification, Notice: w.withdrawal.notice, Done: true}
	if err := p.Sender.Send(ctx, d, message); err != nil && ctx.Err() == nil {
		p.Logger.Info("withdraw push", "device", d.ID, "host", p.Sender.Host(d), "err", err)
	}
	return nil
}

func (p *Push) endWithdrawal(w *withdrawal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.done = true
}

func (p *Push) drop(ctx context.Context, e outbox.Effect[delivery]) error {
	if e.Of.withdrawal != nil {
		p.endWithdrawal(e.Of.withdrawal)
		return nil
	}
	return p.fail(ctx, e.Of.Notification, Device{}, 0,
		permanentError{Reason: "the queue of the device is full"})
}

// fail records that a notification was not sent. If the push service does not know the device any more, fail
// deactivates the device.
func (p *Push) fail(ctx context.Context, n projections.Notification, d Device, attempts int,
	cause error) error {
	var final permanentError
	errors.As(cause, &final)
	if final.Gone {
		_, _, err := p.Records.Save(ctx, records.Save{
			Command:    handlers.Command{Actor: events.ActorSystem},
			Collection: devicesCollection, Record: d.ID, Set: map[string]json.RawMessage{"is_active": json.RawMessage("false")},
		})
		if err != nil {
			p.Logger.Error("deactivate device", "device", d.ID, "err", err)
		}
	}
	return p.recordOutcome(ctx, n, events.NotificationFailed{
		Notification: n.Notification, Device: n.Device, Service: d.Service, Host: p.Sender.Host(d),
		Attempts: attempts, Reason: cause.Error(), Gone: final.Gone,
	})
}

func (p *Push) recordOutcome(ctx context.Context, n projections.Notification, d events.Data) error {
	about, err := events.ParseSubject(n.Subject)
	if err != nil {
		return err
	}
	return outbox.Record(ctx, p.Logger, func(ctx context.Context) error {
		return p.record(ctx, about, identify(d.Kind(), n.Notification, n.Device),
			identify(events.NotificationQueued{}.Kind(), n.Notification, n.Device), d)
	})
}
