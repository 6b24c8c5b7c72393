package push

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/channel"
	"pocketcoder/projections"
)

// The collections with the people's devices, and the rules about which notifications they get.
const (
	devicesCollection = channel.Devices
	rulesCollection   = "notification_rules"
)

// maxDevices limits the devices of an account that are notified, the newest first.
const maxDevices = 20

type record struct {
	id     string
	fields map[string]json.RawMessage
}

func newRecord(c projections.Config) record {
	r := record{id: c.RecordID}
	_ = json.Unmarshal([]byte(c.Fields), &r.fields) // always an object
	return r
}

func (r record) text(name string) (s string) {
	_ = json.Unmarshal(r.fields[name], &s) // "" for other types
	return s
}

func (r record) flag(name string) (b bool) {
	_ = json.Unmarshal(r.fields[name], &b)
	return b
}

// configRecord returns a record, and reports whether it exists.
func (p *Push) configRecord(ctx context.Context, collection, id string) (record, bool, error) {
	c, found, err := p.Model.ConfigRecord(ctx, collection, id)
	return newRecord(c), found, err
}

// device returns a device, and reports whether it is active.
func (p *Push) device(ctx context.Context, id string) (Device, bool, error) {
	r, found, err := p.configRecord(ctx, devicesCollection, id)
	return newDevice(r), found && r.flag("is_active"), err
}

func newDevice(r record) Device {
	return Device{ID: r.id, User: r.text("user"), Name: r.text("name"), Service: r.text("push_service"),
		Token: r.text("push_token")}
}

func (p *Push) devicesOf(ctx context.Context, user string) (list []Device, err error) {
	all, err := p.Model.Config(ctx, devicesCollection)
	for _, c := range slices.Backward(all) {
		if r := newRecord(c); r.flag("is_active") && r.text("user") == user && len(list) < maxDevices {
			list = append(list, newDevice(r))
		}
	}
	return list, err
}

// isEnabled reports whether an account wants notifications of a type. All types are enabled unless its rules disable
// them.
func (p *Push) isEnabled(ctx context.Context, user, typ string) (bool, error) {
	all, err := p.Model.Config(ctx, rulesCollection)
	for _, c := range all {
		if r := newRecord(c); r.text("user") == user {
			return rulesAllow(r.fields["rules"], typ), err
		}
	}
	return true, err
}

// rulesAllow reports whether notification rules enable a type. The rules are a map from types to booleans, or such a
// map encoded as text.
func rulesAllow(raw json.RawMessage, typ string) bool {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
	}
	var rules map[string]any
	_ = json.Unmarshal(raw, &rules) // other values disable nothing
	enabled, isSet := rules[typ].(bool)
	return enabled || !isSet
}

// notify queues a notice for each device of the accounts that have enabled its type and are not viewing the chat. Each
// device gets a notification once.
func (p *Push) notify(ctx context.Context, about events.Subject, id string, people []string, n events.Notice,
	cause string) error {
	for _, user := range people {
		enabled, err := p.isEnabled(ctx, user, n.Type)
		if err != nil {
			return err
		}
		if !enabled {
			continue
		}
		if n.Chat != "" && p.Present(user, n.Chat) {
			p.withheld.add(viewer{user, n.Chat}, time.Time{})
			continue
		}
		devices, err := p.devicesOf(ctx, user)
		if err != nil {
			return err
		}
		for _, d := range devices {
			if err := p.queue(ctx, about, id, d, n, cause); err != nil {
				return err
			}
		}
	}
	return nil
}
