package channel

import (
	"cmp"
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
)

// Targets is the config collection of URLs that get the events of subscribed types.
const Targets = "webhook_targets"

// Target is a URL that gets events. Its secret, with which they are signed, is not in the record.
type Target struct {
	ID      string `json:"id"`
	Seq     uint64 `json:"-"` // of its last change
	Name    string `json:"name"`
	URL     string `json:"url"`
	Types   string `json:"types"` // as TypeOf returns them, with blanks between them
	Enabled bool   `json:"enabled"`
}

// Filters returns the subjects of the events of a target.
func (t Target) Filters() (filters []string) {
	for _, typ := range strings.Fields(t.Types) {
		filters = append(filters, filterOf(typ))
	}
	return filters
}

// TypeOf returns the type of the events with a subject: KIND for those of chats, and user.KIND, audit.KIND or
// config.COLLECTION.KIND for others.
func TypeOf(s events.Subject) string {
	switch s.Scope {
	case events.ScopeChat:
		return s.Kind
	case events.ScopeConfig:
		return string(s.Scope) + "." + s.Collection + "." + s.Kind
	}
	return string(s.Scope) + "." + s.Kind
}

// filterOf returns the subjects of the events of a type.
func filterOf(typ string) string {
	scope, kind, _ := strings.Cut(typ, ".")
	switch events.Scope(scope) {
	case events.ScopeUser:
		return events.UserSubject("*", kind)
	case events.ScopeAudit:
		return events.AuditSubject(kind)
	case events.ScopeConfig:
		collection, kind, _ := strings.Cut(kind, ".")
		return events.ConfigSubject(collection, "*", kind)
	}
	return events.ChatSubject("*", typ)
}

// Replay sends the events of a target again.
type Replay struct {
	handlers.Command
	Target string `json:"target"` // name or id
	From   uint64 `json:"from"`   // sequence of the first event
}

const maxTypes = 20

var typePattern = regexp.MustCompile(`^[a-z_]+(\.[a-z_]+)*$`)

// completeTarget refuses a target that cannot be reached, or that gets no events.
func completeTarget(c record.Change) error {
	u, err := url.Parse(c.Text("url"))
	all := strings.Fields(c.Text("types"))
	slices.Sort(all)
	switch {
	case (c.New || c.Changes("url")) && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"):
		return record.Invalid("url", "Must be a URL such as https://example.org/events.")
	case (c.New || c.Changes("types")) && !validTypes(all):
		return record.Invalid("types", "Must be 1 to %d types of events, such as permission.referred, each once.", maxTypes)
	}
	return nil
}

// validTypes reports whether sorted types of events can be subscribed to. The events about targets cannot: each
// delivery would lead to the next one. Those about devices cannot: who has the token of a device reads its
// notifications, and can approve with them.
func validTypes(all []string) bool {
	return len(all) > 0 && len(all) <= maxTypes && len(slices.Compact(slices.Clone(all))) == len(all) &&
		!slices.ContainsFunc(all, func(typ string) bool {
			s, err := events.ParseSubject(strings.Replace(filterOf(typ), "*", "id", 1))
			return err != nil || !typePattern.MatchString(typ) ||
				s.Collection == Targets || s.Collection == Devices
		})
}

// ListTargets returns the targets in the order of their last changes.
func (h *Channels) ListTargets(ctx context.Context) ([]Target, error) {
	return record.List(ctx, h.Records, Targets, func(r record.StoredRecord[Target]) Target {
		r.Value.ID, r.Value.Seq = r.ID, r.Seq
		return r.Value
	})
}

// Position says up to where a target has its events.
type Position struct {
	Event    uint64 // sequence of the last event that was delivered, failed, or was skipped
	replayed uint64 // sequence of the last replay that Event includes
}

// Position returns the position of a target. A new target gets the events after its creation.
func (h *Channels) Position(ctx context.Context, id string) (p Position, err error) {
	if p.replayed, err = h.Log.Newest(ctx, replays(id)); err != nil { // first: a replay after it refuses deliveries
		return p, err
	}
	newest, err := h.Log.Newest(ctx, events.ConfigSubject(Targets, id, "webhook.*"))
	if err != nil {
		return p, err
	}
	if newest == 0 {
		p.Event, err = h.created(ctx, id)
		return p, err
	}
	e, _, err := h.Log.Get(ctx, newest)
	if err != nil {
		return p, err
	}
	d, err := events.Decode(e)
	switch d := d.(type) {
	case events.WebhookDelivered:
		p.Event = d.Event
	case events.WebhookFailed:
		p.Event = d.Event
	case events.WebhookReplayed:
		p.Event = max(d.From, 1) - 1
	}
	return p, err
}

func replays(id string) string {
	return events.ConfigSubject(Targets, id, events.WebhookReplayed{}.Kind())
}

// created returns the sequence of the first event of a target.
func (h *Channels) created(ctx context.Context, id string) (first uint64, err error) {
	_, err = h.Log.Fold(ctx, events.ConfigSubject(Targets, id, "saved"), 0, func(e events.Event) error {
		first = cmp.Or(first, e.Seq)
		return nil
	})
	return first, err
}

// RecordDelivery records the result of a delivery to a target. It returns log.ErrConflict if a replay came after the
// position from which the event was read.
func (h *Channels) RecordDelivery(ctx context.Context, target string, from Position, d events.Data) error {
	e, err := events.NewConfig(Targets, target, events.ActorSystem, d)
	if err == nil {
		_, err = h.Log.Append(ctx, e, log.Expect{Filter: replays(target), Last: from.replayed})
	}
	return err
}

// Replay accepts the id of a target or its name.
func (h *Channels) Replay(ctx context.Context, c Replay) (uint64, error) {
	all, err := h.ListTargets(ctx)
	if err != nil {
		return 0, err
	}
	for _, t := range all {
		if t.ID != c.Target && t.Name != c.Target {
			continue
		}
		e, err := events.NewConfig(Targets, t.ID, c.Actor, events.WebhookReplayed{From: c.From})
		if err == nil {
			_, err = h.Log.Append(ctx, e.CausedBy(c.ID))
		}
		if err != nil {
			return 0, err
		}
		return h.Records.Touch(ctx, handlers.Command{Actor: c.Actor}, Targets, t.ID) // its deliveries begin anew
	}
	return 0, handlers.RefuseField(handlers.NotFound, "target", "There is no webhook target %q.", c.Target)
}
