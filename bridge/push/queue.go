package push

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/handlers"
	records "pocketcoder/handlers/record"
	"pocketcoder/projections"
)

const (
	maxQueue       = 50             // notifications that wait for a device
	maxWithdrawals = maxQueue       // that are sent to a device at once
	maxAge         = 24 * time.Hour // a new process sends no older notification, and does not notify of older requests
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

// open lists the notifications to send.
func (p *Push) open(ctx context.Context) (open []outbox.Effect[projections.Notification], next time.Duration,
	err error) {
	all, err := p.Model.OpenNotifications(ctx)
	for _, n := range all {
		open = append(open, outbox.Effect[projections.Notification]{Key: n.ID, Target: n.Device, Of: n})
	}
	return open, time.Hour, err
}

// try sends a notification, and records the outcome unless another try may help. If its request was decided meanwhile,
// try withdraws it.
func (p *Push) try(ctx context.Context, e outbox.Effect[projections.Notification]) error {
	n, attempts := e.Of, e.Tried+1
	var notice events.Notice
	err := json.Unmarshal([]byte(n.Notice), &notice)
	if err != nil {
		return p.fail(ctx, n, Device{}, attempts, permanentError{Reason: "read the notice: " + err.Error()})
	}
	d, err := p.send(ctx, n, notice)
	if err == nil {
		err := p.recordOutcome(ctx, n, events.NotificationSent{Notification: n.Notification, Device: d.ID,
			Service: d.Service, Host: p.Sender.Host(d), Attempts: attempts})
		if waiting, failure := p.isPending(ctx, notice); err != nil || failure != nil || waiting {
			return cmp.Or(err, failure)
		}
		p.withdrawOne(ctx, n, notice)
		return nil
	}
	if !errors.As(err, new(permanentError)) && (attempts <= len(p.RetryAfter) || ctx.Err() != nil) {
		return err
	}
	return p.fail(ctx, n, d, attempts, err)
}

// send sends a notification once, if its device is active and its request is pending.
func (p *Push) send(ctx context.Context, n projections.Notification, notice events.Notice) (Device, error) {
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

// withdraw withdraws a notification, because of e, from the devices to which it was sent. If it is being sent, try
// withdraws it.
func (p *Push) withdraw(ctx context.Context, e events.Event, id string, n events.Notice) error {
	if time.Since(e.Time) > maxWithdrawalAge {
		return nil
	}
	all, err := p.Model.Notifications(ctx, id)
	for _, sent := range all {
		if sent.State == projections.NotificationSent {
			p.busy.Go(func() { p.withdrawOne(ctx, sent, n) })
		}
	}
	return err
}

// withdrawOne withdraws a notification from its device, once in maxWithdrawalAge. A failure has no consequence, because
// the buttons of a decided request do nothing.
func (p *Push) withdrawOne(ctx context.Context, sent projections.Notification, n events.Notice) {
	if !p.beginWithdrawal(sent) {
		return
	}
	defer p.endWithdrawal(sent)
	d, active, err := p.device(ctx, sent.Device)
	if err != nil || !active {
		return
	}
	n.Title, n.Message = "", ""
	message := Message{ID: sent.Notification, Notice: n, Done: true}
	if err := p.Sender.Send(ctx, d, message); err != nil && ctx.Err() == nil {
		p.Logger.Info("withdraw push", "device", d.ID, "host", p.Sender.Host(d), "err", err)
	}
}

// beginWithdrawal reports whether a notification is withdrawn now. It skips one that was withdrawn already, and one of
// a device that does not answer the earlier withdrawals.
func (p *Push) beginWithdrawal(sent projections.Notification) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.withdrawn[sent.ID]) < maxWithdrawalAge || p.withdrawing[sent.Device] >= maxWithdrawals {
		return false
	}
	p.withdrawn[sent.ID] = time.Now()
	p.withdrawing[sent.Device]++
	return true
}

func (p *Push) endWithdrawal(sent projections.Notification) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.withdrawing[sent.Device]--; p.withdrawing[sent.Device] == 0 {
		delete(p.withdrawing, sent.Device)
	}
}

func (p *Push) drop(ctx context.Context, e outbox.Effect[projections.Notification]) error {
	return p.fail(ctx, e.Of, Device{}, 0, permanentError{Reason: "the queue of the device is full"})
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
