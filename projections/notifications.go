package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Notification is a notification to a device. It is open until an event says how it ended.
type Notification struct {
	store.Record
	Notification string     `db:"notification"` // the same for all devices
	Device       string     `db:"device"`       // record of the collection devices
	Subject      string     `db:"subject"`      // of the event that queued it: a chat, a record or an account
	Notice       store.JSON `db:"notice"`       // events.Notice; empty once it has ended
	State        string     `db:"state"`
	Position     int64      `db:"position"` // sequence of the event that queued it
}

// States of a Notification.
const (
	notificationQueued = "queued"
	NotificationSent   = "sent"
	notificationFailed = "failed"
)

// updateNotifications applies an event of any scope.
func updateNotifications(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.NotificationQueued:
		n, found := t.notifications.Get(notificationID(b.Notification, b.Device))
		if found {
			return nil // the event was appended twice
		}
		n.Notification, n.Device, n.Subject, n.Notice = b.Notification, b.Device, e.RawSubject, encoded(b.Notice)
		n.State, n.Position = notificationQueued, int64(e.Seq)
		t.notifications.Put(n)
	case events.NotificationSent:
		endNotification(t, b.Notification, b.Device, NotificationSent)
	case events.NotificationFailed:
		endNotification(t, b.Notification, b.Device, notificationFailed)
	}
	return nil
}

func endNotification(t *tables, notification, device, state string) {
	if n, found := t.notifications.Get(notificationID(notification, device)); found {
		n.State, n.Notice = state, "" // it may be long, and nothing reads it any more
		t.notifications.Put(n)
	}
}

func notificationID(notification, device string) string {
	return store.RecordID(notification + "/" + device)
}

// OpenNotifications returns the notifications that wait to be sent, the oldest first.
func (m *Model) OpenNotifications(ctx context.Context) ([]Notification, error) {
	return store.List[Notification](ctx, m.Model, "open notifications",
		"SELECT * FROM notifications WHERE state='queued' ORDER BY position", nil)
}

// NotificationTo returns a notification to a device, and whether there is one.
func (m *Model) NotificationTo(ctx context.Context, notification, device string) (Notification, bool, error) {
	return store.First[Notification](ctx, m.Model, "notification "+notification,
		"SELECT * FROM notifications WHERE id={:id}", dbx.Params{"id": notificationID(notification, device)})
}

// Notifications returns a notification to all devices.
func (m *Model) Notifications(ctx context.Context, notification string) ([]Notification, error) {
	return store.List[Notification](ctx, m.Model, "notifications "+notification,
		"SELECT * FROM notifications WHERE notification={:id}", dbx.Params{"id": notification})
}
