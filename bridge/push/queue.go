package push

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"pocketcoder/bridge/push/service"
	"pocketcoder/events"
	"pocketcoder/handlers"
	records "pocketcoder/handlers/record"
)

// job is what a device's queue has to do: tell it something, or take that back.
type job struct {
	about    events.Subject
	target   target
	notice   events.Notice
	cause    string // id of the event that says it was queued
	withdraw bool
}

// maxQueue is how much waits for one device.
const maxQueue = 50

// queue notes that a device is to be told something and hands that to its queue, unless it was noted before.
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

// withdraw takes back what devices were told, or are about to be.
func (p *Push) withdraw(ctx context.Context, about events.Subject, id string, n events.Notice) error {
	states, err := p.notifications.of(ctx, p.Log, about)
	for t, s := range states {
		if t.notification == id && (s == queued || s == sent) {
			p.put(ctx, job{about: about, target: t, notice: n, withdraw: true})
		}
	}
	return err
}

// open makes queues that serves begins to serve, or with nil none any more.
func (p *Push) open(serves func(chan job)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serves, p.queues = serves, map[string]chan job{}
}

// put hands a job to its device's queue. It never waits: what is too much for the queue has failed. While nothing is
// served, the job is left to the next Run.
func (p *Push) put(ctx context.Context, j job) {
	if !p.enqueue(j) && !j.withdraw {
		p.fail(ctx, j, service.Device{}, 0, service.PermanentError{Reason: "too much waits for this device"})
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

// deliver tries until the device was told, or will not be.
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
			return // the next process goes on
		}
		if errors.As(err, new(service.PermanentError)) || attempt > len(p.RetryAfter) {
			p.fail(ctx, j, d, attempt, err)
			return
		}
		p.Logger.Warn("push", "device", d.ID, "host", p.Sender.Host(d), "attempt", attempt, "err", err)
		select {
		case <-time.After(p.RetryAfter[attempt-1]):
		case <-ctx.Done():
			return
		}
	}
}

// attempt tells the device once, if it is still there and there is still something to tell.
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

// shutdownGrace is how long a shutdown waits for the answer to what was sent: without it, it would be sent again.
const shutdownGrace = 2 * time.Second

// sendWithdrawal withdraws what a device was told. That it cannot be withdrawn is no harm: its buttons do nothing any
// more.
func (p *Push) sendWithdrawal(ctx context.Context, j job) {
	states, err := p.notifications.of(ctx, p.Log, j.about)
	if err != nil || states[j.target] != sent {
		return
	}
	d, active, err := p.device(ctx, j.target.device)
	if err != nil || !active {
		return
	}
	p.notifications.withdraw(j.about, j.target) // OpenCode's echo of a decision takes it back no second time
	if err := p.Sender.Send(ctx, d, service.Message{ID: j.target.notification, Notice: j.notice,
		Done: true}); err != nil && ctx.Err() == nil {
		p.Logger.Info("withdraw push", "device", d.ID, "host", p.Sender.Host(d), "err", err)
	}
}

// fail notes that a device was not told. One that its push service does not know any more is deactivated.
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

// What could not be recorded is recorded again after notePause; one try may take noteTimeout, which a shutdown waits
// for.
const (
	recordPause   = time.Second
	recordTimeout = 3 * time.Second
)

// recordResult records what became of a job, as often as it takes: what is not recorded would be sent again.
func (p *Push) recordResult(ctx context.Context, j job, d events.Data) {
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		err := p.record(bounded, j.about, j.target, j.cause, d)
		cancel()
		if err == nil || ctx.Err() != nil {
			return
		}
		p.Logger.Error("push", "err", err)
		select {
		case <-time.After(recordPause):
		case <-ctx.Done():
		}
	}
}
