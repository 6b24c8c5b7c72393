package handlers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
)

// RequestPermission asks for permission over the API, as OpenCode does for its tools. Permission is its id, made by the
// caller or empty: asking the same under the same id again is asking it once.
type RequestPermission struct {
	Command
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

// Draft is the status of a permission that waits for a decision.
const Draft = "draft"

// intent is what is known of an ask that came by RequestPermission.
type intent struct {
	seq     uint64
	content [sha256.Size]byte // of the event's JSON
}

// intended says whether the ask came by RequestPermission. An id is that of the first ask of the chat that had it: OpenCode's
// word about another does not count.
func (s *permissions) intended(id string) bool {
	_, ok := s.intents[id]
	return ok
}

func (s *permissions) applyRequest(e events.Event, d events.PermissionRequested) {
	a := d.Ask()
	if _, taken := s.asks[a.ID]; taken {
		return
	}
	s.intents[a.ID] = intent{e.Seq, sha256.Sum256(e.Data)}
	// Its session and call stay out of every decision: nobody vouches for them.
	s.asks[a.ID] = ask{id: a.ID, typ: a.Permission, command: a.Command(), request: a.Request(), event: e.ID, seq: e.Seq}
}

// RequestPermission carries out the command. It is the gate that evaluates the policy: see Gate.Request.
func (h *Handlers) RequestPermission(ctx context.Context, c RequestPermission) (permission string, seq uint64, err error) {
	if c.Permission == "" {
		c.Permission = events.NewID()
	}
	if err := c.check(); err != nil {
		return "", 0, err
	}
	f := h.chatPermissions(ctx, c.Chat)
	seq, err = h.carryOut(ctx, c.Command, f, func() ([]events.Event, uint64, error) {
		e, err := events.New(c.Chat, c.Actor, c.event())
		if err != nil {
			return nil, 0, err
		}
		e.Data = h.Log.Redactor().JSON(e.Data) // as it is stored, to compare it with what is
		seq, err := f.state.(*permissions).asked(c, sha256.Sum256(e.Data))
		if err != nil || seq != 0 {
			return nil, seq, err
		}
		return []events.Event{e}, 0, nil
	})
	if err != nil {
		return "", 0, err
	}
	return c.Permission, seq, nil
}

func (c RequestPermission) event() events.PermissionRequested {
	return events.PermissionRequested{
		Permission: c.Permission, Type: c.Type, Patterns: c.Patterns, Metadata: c.Metadata, Message: c.Message,
		Session: c.Session, MessageID: c.MessageID, Call: c.Call,
	}
}

func (c RequestPermission) check() error {
	if _, err := events.ParseID(c.Chat); err != nil {
		return refuseField(Invalid, "chat", "chat: %v", err)
	}
	if _, err := events.ParseID(c.Permission); err != nil {
		return refuseField(Invalid, "id", "permission: %v", err)
	}
	if strings.HasPrefix(c.Permission, "per_") {
		return refuseField(Invalid, "id", "permission: %s is an id of OpenCode's", c.Permission)
	}
	if _, err := events.ParseID(c.Type); err != nil {
		return refuseField(Invalid, "permission", "type: %v", err)
	}
	switch c.Type {
	case BudgetAsk:
		return refuseField(Invalid, "permission", "type: nobody asks for more than a budget allows but the budget")
	case NetworkAsk:
		return refuseField(Invalid, "permission", "type: nobody asks for a host but the command that connects to it")
	}
	if m := bytes.TrimSpace(c.Metadata); len(m) > 0 && (m[0] != '{' || !json.Valid(m)) {
		return refuseField(Invalid, "metadata", "metadata: want a JSON object")
	}
	for _, text := range append([]string{c.Message, c.Session, c.MessageID, c.Call, string(c.Metadata)}, c.Patterns...) {
		if !utf8.ValidString(text) {
			return refuse(Invalid, "the request is not UTF-8")
		}
	}
	if body, err := json.Marshal(c); err != nil || len(body) > MaxRequest {
		return refuse(Invalid, "the request is %d bytes; the limit is %d", len(body), MaxRequest)
	}
	return nil
}

// asked finds the place where the same was asked already, 0 when it was not.
func (s *permissions) asked(c RequestPermission, content [sha256.Size]byte) (seq uint64, err error) {
	if err := s.missing(c.Chat); err != nil {
		return 0, err
	}
	r := s.intents[c.Permission]
	if _, taken := s.asks[c.Permission]; taken && r.content != content {
		return 0, refuseField(Conflict, "id", "permission %s was asked for already with other content", c.Permission)
	}
	return r.seq, nil
}

// Request carries out the command and decides it at once when a rule allows it. The status is Draft, or the decision, and
// seq that of the event that made it so.
func (g Gate) Request(ctx context.Context, c RequestPermission) (permission, status string, seq uint64, err error) {
	if permission, seq, err = g.Handlers.RequestPermission(ctx, c); err != nil {
		return "", "", 0, err
	}
	c.Permission = permission
	if err := g.meet(ctx, c.Chat, c.event().Ask(), true); err != nil {
		return "", "", 0, err
	}
	f := g.Handlers.chatPermissions(ctx, c.Chat)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.advance(ctx, g.Handlers.Log); err != nil {
		return "", "", 0, err
	}
	how := f.state.(*permissions).settled[permission]
	switch {
	case how.decided == nil:
		return permission, Draft, seq, nil
	case transactionOf(ctx) != nil:
		return permission, how.how, 0, nil
	}
	return permission, how.how, how.seq, nil
}
