// Package device registers the devices that get notifications.
//
// Promises: no list shows a push token, which is enough to read the notifications.
//
// It must not know how a notification is sent.
package device

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
)

// The config collections of the devices that get notifications, and of the rules of an account on which it gets.
const (
	Collection = "devices"
	Rules      = "notification_rules"
)

// Types are the types of the records of devices and of the rules on notifications.
var Types = []record.Type{
	{Name: Collection, Title: "Devices", About: "that receive notifications",
		Access: record.Rules(record.Own, record.Own, record.Own, record.Own, record.Own),
		Unique: []string{"user", "push_token"}, Upsert: true,
		Fields: []record.Field{
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "push_token", Kind: record.Text, Label: "Address for notifications", Required: true},
			{Name: "push_service", Kind: record.Select, Label: "Notification service", Values: []string{"fcm", ServiceUnifiedPush, "webpush"}, Required: true},
			{Name: "is_active", Kind: record.Bool, Label: "Enabled"},
		}},
	{Name: Rules, Title: "Notification rules", About: "what you are notified about",
		Access: record.Rules(record.Own, record.Own, record.Own, record.Own, record.Own),
		Unique: []string{"user"}, Upsert: true,
		Fields: []record.Field{
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
			{Name: "rules", Kind: record.JSON, Label: "Rules, as JSON"},
		}},
}

// Commands are the commands that can be sent over NATS.
func Commands(h *record.Records) handlers.Commands {
	return handlers.Commands{
		"device.add": handlers.CommandOf(func(c *Add, actor string) { c.Actor = actor },
			handlers.Created(func(ctx context.Context, c Add) (string, uint64, error) { return c.CarryOut(ctx, h) })),
		"device.list": handlers.QueryOf(func(ctx context.Context, _ struct{}) ([]Device, error) { return All(ctx, h) }),
	}
}

// ServiceUnifiedPush is the push service of ntfy and of UnifiedPush distributors: the token is a URL.
const ServiceUnifiedPush = "unifiedpush"

// Device is a device as commands list it. It leaves out the push token, because the token is enough to read the
// notifications.
type Device struct {
	ID      string `json:"id"`
	User    string `json:"user"` // id of the account
	Name    string `json:"name"`
	Service string `json:"push_service"`
	Host    string `json:"host,omitempty"` // of the push service, where the token is a URL
	Active  bool   `json:"is_active"`
}

// Add registers an ntfy topic or UnifiedPush endpoint for an account.
type Add struct {
	handlers.Command
	User string `json:"user"` // id of the account
	Name string `json:"name"`
	URL  string `json:"url"`
}

// CarryOut renames a device whose URL the account has already, and activates it again.
func (c Add) CarryOut(ctx context.Context, h *record.Records) (id string, seq uint64, err error) {
	if _, err := events.ParseID(c.User); err != nil {
		return "", 0, handlers.RefuseField(handlers.Invalid, "user", "user: %v", err)
	}
	if strings.TrimSpace(c.Name) == "" {
		return "", 0, handlers.RefuseField(handlers.Invalid, "name", "A device needs a name, such as \"My phone\".")
	}
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		strings.Trim(u.Path, "/") == "" {
		return "", 0, handlers.RefuseField(handlers.Invalid, "url",
			"The URL must be that of an ntfy topic or a UnifiedPush endpoint, such as https://ntfy.sh/SECRET-TOPIC.")
	}
	return h.Save(ctx, record.Save{
		Command: c.Command, Collection: Collection, New: true,
		Set: record.Fields(map[string]any{"user": c.User, "name": strings.TrimSpace(c.Name), "push_service": ServiceUnifiedPush, "push_token": c.URL, "is_active": true}),
	})
}

// All lists the devices of all accounts, by account and name.
func All(ctx context.Context, h *record.Records) ([]Device, error) {
	type stored struct {
		Device
		Token string `json:"push_token"`
	}
	all, err := record.All[stored](ctx, h, Collection)
	if err != nil {
		return nil, err
	}
	list := []Device{}
	for _, one := range all {
		d := one.Value
		d.ID = one.ID
		if u, err := url.Parse(d.Token); err == nil && d.Service == ServiceUnifiedPush {
			d.Host = u.Host
		}
		list = append(list, d.Device)
	}
	slices.SortStableFunc(list, func(a, b Device) int {
		return strings.Compare(a.User+"\x00"+a.Name, b.User+"\x00"+b.Name)
	})
	return list, nil
}
