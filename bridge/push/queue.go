package push

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"pocketcoder/bridge/push/service"
	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers"
	records "pocketcoder/handlers/record"
)

// job is an entry of a device's queue: a notification to send or to withdraw.
type job struct {
	about    events.Subject
	target   target
	notice   events.Notice
	cause    string // id of notification.queued
	withdraw bool
}

// maxQueue is the length of a device's queue.
const maxQueue = 50

// queue appends notification.queued and puts the notification into the device's queue. It does nothing if the
// notification was queued before.
func (p *Push) queue(ctx context.Context, about events.Subject, id string, d service.Device, n events.Notice,
	cause string) error {
	p.queueing.Lock()
	defer p.queueing.Unlock()
	states, err := p.notifications.of(ctx, p.Log, about)
	t := target{id, d.ID}
	if _, known := states[t]; err != nil || known {
		return err
	}
	queuedEvent := events.NotificationQueued{Notification: id, Device: d.ID, User: d.User, Notice: n}
	if err := p.record(ctx, about, t, cause, queuedEvent); err != nil {
		return err
	}
	p.put(ctx, job{about: about, target: t, notice: n, cause: identify(queuedEvent.Kind(), id, d.ID)})
	return nil
}

// withdraw withdraws a notification, because of e, from the devices to which it was sent or for which it is queued.
func (p *Push) withdraw(ctx context.Context, e events.Event, about events.Subject, id string, n events.Notice) error {
	if time.Since(e.Time) > maxWithdrawalAge {
		return nil
	}
	states, err := p.notifications.of(ctx, p.Log, about)
	for t, s := range states {
		if t.notification == id && (s == queued || s == sent) {
			p.put(ctx, job{about: about, target: t, notice: n, withdraw: true})
		}
	}
	return err
}

// open creates empty queues. serves starts to serve a queue; nil stops queueing.
func (p *Push) open(serves func(chan job)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serves, p.queues = serves, map[string]chan job{}
}

// put adds a job to its device's queue. It never blocks: a notification for a full queue has failed. If Run is not
// running, the next Run resumes the notification.
func (p *Push) put(ctx context.Context, j job) {
	if !p.enqueue(j) && !j.withdraw {
		p.fail(ctx, j, service.Device{}, 0, service.PermanentError{Reason: "the queue of the device is full"})
	}
}

func (p *Push) enqueue(j job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serves == nil {
		return true
	}
	q := p.queues[j.target.device]
	if q == nil {
		q = make(chan job, maxQueue)
		p.queues[j.target.device] = q
		p.serves(q)
	}
	select {
	case q <- j:
		return true
	default:
		return false
	}
}

func (p *Push) serve(ctx context.Context, q chan job) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-q:
			if j.withdraw {
				p.sendWithdrawal(ctx, j)
			} else {
				p.deliver(ctx, j)
			}
		}
	}
}

// deliver tries to send a notification until it is sent or has failed.
func (p *Push) deliver(ctx context.Context, j job) {
	for attempt := 1; ; attempt++ {
		d, err := p.attempt(ctx, j)
		if err == nil {
			p.recordResult(ctx, j, events.NotificationSent{
				Notification: j.target.notification, Device: d.ID, Service: d.Service, Host: p.Sender.Host(d), Attempts: attempt,
			})
			return
		}
		if ctx.Err() != nil {
			return // the next process resumes it
		}
		if errors.As(err, new(service.PermanentError)) || attempt > len(p.RetryAfter) {
			p.fail(ctx, j, d, attempt, err)
			return
		}
		p.Logger.Warn("push", "device", d.ID, "host", p.Sender.Host(d), "attempt", attempt, "err", err)
		if sleep.For(ctx, p.RetryAfter[attempt-1]) != nil {
			return
		}
	}
}

// attempt sends a notification once, if its device is active and its request is pending.
func (p *Push) attempt(ctx context.Context, j job) (service.Device, error) {
	d, active, err := p.device(ctx, j.target.device)
	if err != nil {
		return d, err
	}
	if !active {
		return service.Device{ID: j.target.device}, service.PermanentError{Reason: "the device is not active any more"}
	}
	waiting, err := p.isPending(ctx, j.notice)
	if err != nil {
		return d, err
	}
	if !waiting {
		return d, service.PermanentError{Reason: "it was decided before it could be sent"}
	}
	buttons, err := p.buttons(ctx, d, j.notice)
	if err != nil {
		return d, err
	}
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(shutdownGrace, cancel) })()
	return d, p.Sender.Send(patient, d, service.Message{ID: j.target.notification, Notice: j.notice, Buttons: buttons})
}

// shutdownGrace is how long a shutdown waits for the response of a push service. Without the response, the next process
// would send the notification again.
const shutdownGrace = 2 * time.Second

// sendWithdrawal withdraws a notification from a device. A failure has no consequence, because the buttons of a decided
// request do nothing.
func (p *Push) sendWithdrawal(ctx context.Context, j job) {
	states, err := p.notifications.of(ctx, p.Log, j.about)
	if err != nil || states[j.target] != sent {
		return
	}
	d, active, err := p.device(ctx, j.target.device)
	if err != nil || !active {
		return
	}
	p.notifications.withdraw(j.about, j.target) // so that OpenCode's event about the decision does not withdraw it again
	if err := p.Sender.Send(ctx, d, service.Message{ID: j.target.notification, Notice: j.notice,
		Done: true}); err != nil && ctx.Err() == nil {
		p.Logger.Info("withdraw push", "device", d.ID, "host", p.Sender.Host(d), "err", err)
	}
}

// fail records that a notification was not sent. If the push service does not know the device any more, fail
// deactivates the device.
func (p *Push) fail(ctx context.Context, j job, d service.Device, attempts int, cause error) {
	var final service.PermanentError
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
	p.recordResult(ctx, j, events.NotificationFailed{
		Notification: j.target.notification, Device: j.target.device, Service: d.Service, Host: p.Sender.Host(d),
		Attempts: attempts, Reason: cause.Error(), Gone: final.Gone,
	})
}

// A result that could not be recorded is recorded again after recordPause. Each try takes at most recordTimeout, and a
// shutdown waits for it.
const (
	recordPause   = time.Second
	recordTimeout = 3 * time.Second
)

// recordResult records the result of a job. It retries until it succeeds, because an unrecorded notification would be
// sent again.
func (p *Push) recordResult(ctx context.Context, j job, d events.Data) {
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		err := p.record(bounded, j.about, j.target, j.cause, d)
		cancel()
		if err == nil || ctx.Err() != nil {
			return
		}
		p.Logger.Error("push", "err", err)
		_ = sleep.For(ctx, recordPause)
	}
}
