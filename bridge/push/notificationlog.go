package push

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
)

// notificationLog holds the states of notifications, by the chat, record or account that they are about. It folds them
// from the log. The zero value is empty.
type notificationLog struct {
	mu sync.Mutex
	by map[events.Subject]*history
}

// history holds the states of the notifications about one chat, record or account.
type history struct {
	last  uint64
	state map[target]state
}

// target is one notification to one device.
type target struct{ notification, device string }

// state is the state of a notification to a device.
type state int

const (
	queued state = iota + 1
	sent
	failed
	withdrawn // not recorded; known in this process only
)

// maxHistories is the maximal number of cached histories. Beyond it, all are folded again.
const maxHistories = 256

// of folds the new events about a subject and returns the states of its notifications.
func (t *notificationLog) of(ctx context.Context, log *log.Log, about events.Subject) (map[target]state, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.by[about]
	if h == nil {
		if t.by == nil || len(t.by) >= maxHistories {
			t.by = map[events.Subject]*history{}
		}
		h = &history{state: map[target]state{}}
		t.by[about] = h
	}
	last, err := log.Fold(ctx, notifications(about), h.last, func(e events.Event) error { h.apply(e); return nil })
	if err != nil {
		return nil, err
	}
	h.last = last
	return maps.Clone(h.state), nil
}

// withdraw records that a sent notification was removed from the device.
func (t *notificationLog) withdraw(about events.Subject, what target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.by[about]; h != nil {
		h.state[what] = withdrawn
	}
}

func (h *history) apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.NotificationQueued:
		if k := (target{d.Notification, d.Device}); h.state[k] == 0 {
			h.state[k] = queued
		}
	case events.NotificationSent:
		h.state[target{d.Notification, d.Device}] = sent
	case events.NotificationFailed:
		h.state[target{d.Notification, d.Device}] = failed
	}
}

// notifications returns the filter of the notification events about a subject.
func notifications(about events.Subject) string {
	const kinds = "notification.*"
	switch about.Scope {
	case events.ScopeConfig:
		return events.ConfigSubject(about.Collection, about.ID, kinds)
	case events.ScopeUser:
		return events.UserSubject(about.ID, kinds)
	}
	return events.ChatSubject(about.ID, kinds)
}

// record appends an event about a notification to a device. The id of the event is derived from its content, so the
// server drops a second one.
func (p *Push) record(ctx context.Context, about events.Subject, t target, cause string, d events.Data) error {
	var e events.Event
	var err error
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
	e.ID = identify(d.Kind(), t.notification, t.device)
	if _, err := p.Log.Append(ctx, e.CausedBy(cause)); err != nil {
		return fmt.Errorf("record notification: %w", err)
	}
	return nil
}

// maxResumeAge is the maximal age of a notification that an earlier process queued and did not send.
const maxResumeAge = 24 * time.Hour

// resume opens the queues. It queues the notifications again that an earlier process queued and neither sent nor failed
// to send.
func (p *Push) resume(ctx context.Context, serves func(chan job)) error {
	p.queueing.Lock()
	defer p.queueing.Unlock()
	p.open(serves)
	after, err := p.Log.At(ctx, time.Now().Add(-maxResumeAge))
	if err != nil {
		return err
	}
	for _, every := range []events.Subject{
		{Scope: events.ScopeChat, ID: "*"}, {Scope: events.ScopeUser, ID: "*"}, {Scope: events.ScopeConfig, Collection: mcpserver.Collection, ID: "*"},
		{Scope: events.ScopeConfig, Collection: model.Providers, ID: "*"},
	} {
		open := map[target]job{}
		var order []target
		_, err := p.Log.Fold(ctx, notifications(every), after, func(e events.Event) error {
			switch d, _ := events.Decode(e); d := d.(type) {
			case events.NotificationQueued:
				t := target{d.Notification, d.Device}
				open[t] = job{about: subjectOnly(e.Subject), target: t, notice: d.Notice, cause: e.ID}
				order = append(order, t)
			case events.NotificationSent:
				delete(open, target{d.Notification, d.Device})
			case events.NotificationFailed:
				delete(open, target{d.Notification, d.Device})
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, t := range order {
			if j, ok := open[t]; ok {
				p.put(ctx, j)
			}
		}
	}
	return nil
}

func subjectOnly(s events.Subject) events.Subject { s.Kind = ""; return s }
