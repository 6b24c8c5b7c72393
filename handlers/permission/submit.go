package permission

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// Submit is the command to make a permission request over the API. Permission is the id of the request; if it is
// empty, one is created. A second Submit with the same id and content changes nothing.
type Submit struct {
	handlers.Command
	Chat       string          `json:"chat"`
	Permission string          `json:"permission,omitempty"`
	Type       string          `json:"type"` // bash, edit, …
	Patterns   []string        `json:"patterns,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"` // object; for bash with the command
	Message    string          `json:"message,omitempty"`
	Session    string          `json:"session,omitempty"`
	MessageID  string          `json:"message_id,omitempty"`
	Call       string          `json:"call,omitempty"`
}

// MaxRequest is the largest permission request, in bytes of its JSON.
const MaxRequest = 1 << 20

// ForAdministrators reports whether only administrators decide a request: a request to exceed a budget that covers
// several chats.
func ForAdministrators(typ string, metadata json.RawMessage) bool {
	var m struct{ Administrators bool }
	_ = json.Unmarshal(metadata, &m) // of another shape, they are not those of a budget
	return typ == events.KindBudget && m.Administrators
}

// Submit appends the request. It does not evaluate the policy; Gate.Submit does.
func (h *Permissions) Submit(ctx context.Context, c Submit) (permission string, seq uint64, err error) {
	c.Permission = cmp.Or(c.Permission, events.NewID())
	if err := c.check(); err != nil {
		return "", 0, err
	}
	seq, err = h.Chat(ctx, c.Chat).Execute(ctx, h.Log, c.Command, func(s *State) ([]events.Event, uint64, error) {
		e, err := events.New(c.Chat, c.Actor, c.event())
		if err != nil {
			return nil, 0, err
		}
		e.Data = h.Log.Redactor().JSON(e.Data) // as it is stored, to compare it with what is
		if err := s.Missing(c.Chat); err != nil {
			return nil, 0, err
		}
		switch r := s.Request(c.Permission); {
		case r.Seq == 0:
			return []events.Event{e}, 0, nil
		case r.content != sha256.Sum256(e.Data):
			return nil, 0, handlers.RefuseField(handlers.Conflict, "id", "permission %s exists already with other content",
				c.Permission)
		default:
			return nil, r.Seq, nil
		}
	})
	if err != nil {
		return "", 0, err
	}
	return c.Permission, seq, nil
}

func (c Submit) event() events.PermissionRequested {
	return events.PermissionRequested{
		Permission: c.Permission, Type: c.Type, Patterns: c.Patterns, Metadata: c.Metadata, Message: c.Message,
		Session: c.Session, MessageID: c.MessageID, Call: c.Call,
	}
}

func (c Submit) check() error {
	if err := handlers.CheckChat(c.Chat); err != nil {
		return err
	}
	if _, err := events.ParseID(c.Permission); err != nil {
		return handlers.RefuseField(handlers.Invalid, "id", "permission: %v", err)
	}
	if strings.HasPrefix(c.Permission, "per_") {
		return handlers.RefuseField(handlers.Invalid, "id", "permission: %s is an id of OpenCode's", c.Permission)
	}
	if _, err := events.ParseID(c.Type); err != nil {
		return handlers.RefuseField(handlers.Invalid, "permission", "type: %v", err)
	}
	if author := events.RequestKinds[c.Type].Author; author != "" {
		return handlers.RefuseField(handlers.Invalid, "permission", "type: only %s makes requests of this type", author)
	}
	if m := bytes.TrimSpace(c.Metadata); len(m) > 0 && (m[0] != '{' || !json.Valid(m)) {
		return handlers.RefuseField(handlers.Invalid, "metadata", "metadata: want a JSON object")
	}
	if levels := events.Levels(c.Metadata); levels > events.MaxLevels {
		return handlers.RefuseField(handlers.Invalid, "metadata",
			"metadata: the object nests %d levels; at most %d are accepted", levels, events.MaxLevels)
	}
	for _, text := range append([]string{c.Message, c.Session, c.MessageID, c.Call, string(c.Metadata)}, c.Patterns...) {
		if !utf8.ValidString(text) {
			return handlers.Refuse(handlers.Invalid, "the request is not UTF-8")
		}
	}
	if body, err := json.Marshal(c); err != nil || len(body) > MaxRequest {
		return handlers.Refuse(handlers.Invalid, "the request is %d bytes; the limit is %d", len(body), MaxRequest)
	}
	return nil
}

// Submit makes a request and decides it at once if a rule does. status is events.Draft or the decision, and seq is the
// sequence of the event that set it.
func (g Gate) Submit(ctx context.Context, c Submit) (permission, status string, seq uint64, err error) {
	if permission, seq, err = g.Permissions.Submit(ctx, c); err != nil {
		return "", "", 0, err
	}
	c.Permission = permission
	if err := g.evaluate(ctx, c.Chat, c.event().Request(), true, ""); err != nil {
		return "", "", 0, err
	}
	var outcome Outcome
	err = g.Permissions.Chat(ctx, c.Chat).Read(ctx, g.Permissions.Log, func(s *State) error {
		outcome = s.Request(permission).Outcome
		return nil
	})
	switch {
	case err != nil:
		return "", "", 0, err
	case outcome.Decided == nil:
		return permission, events.Draft, seq, nil
	case handlers.InTransaction(ctx):
		return permission, outcome.Status, 0, nil
	}
	return permission, outcome.Status, outcome.Seq, nil
}
