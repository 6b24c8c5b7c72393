package handlers

import (
	"context"
	"encoding/json"
	"strings"

	"pocketcoder/events"
)

// DecidePermission answers a permission ask. The first decision wins; any other is refused. To say again what a person
// decided is no other.
type DecidePermission struct {
	Command
	Chat       string          `json:"chat"`
	Permission string          `json:"permission"` // OpenCode's per_… id, or that of a RequestPermission
	Decision   events.Decision `json:"decision"`
	Reason     string          `json:"reason,omitempty"` // shown to the model with a denial
	Rule       string          `json:"-"`                // when the policy decides
	Grant      string          `json:"-"`                // when an interrupted ask's approval is used up
}

// permissions is what the gate knows of a chat's asks.
type permissions struct {
	chatState
	asks    map[string]ask
	intents map[string]intent  // those of the asks that came by RequestPermission
	settled map[string]settled // decided, expired, or answered in OpenCode by somebody else
	lost    map[string]bool    // interrupted: OpenCode forgot the ask
	used    map[string]bool    // interrupted asks whose approval another ask has used up
}

// ask is what a decision repeats of what was asked, and the id of the event that asked.
type ask struct{ id, session, call, typ, command, request, event string }

type settled struct {
	seq     uint64
	cause   string
	by      string
	decided *events.PermissionDecided
	how     string
}

func newPermissions() *permissions {
	return &permissions{
		asks: map[string]ask{}, intents: map[string]intent{}, settled: map[string]settled{},
		lost: map[string]bool{}, used: map[string]bool{},
	}
}

// permissionFilters are the subjects a decision is made on; the first is where decisions are.
func permissionFilters(chat string) []string {
	return []string{events.ChatSubject(chat, "permission.*"), events.ChatSubject(chat, "opencode.permission.*"), chatFilter(chat)}
}

func (s *permissions) apply(e events.Event) {
	s.chatState.apply(e)
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.PermissionRequested:
		s.applyRequest(e, d)
	case events.PermissionDecided:
		s.settled[d.Permission] = settled{e.Seq, e.Cause, e.Actor, &d, string(d.Decision)}
		if d.Grant != "" {
			s.used[d.Grant] = true
		}
	case events.PermissionInterrupted:
		s.lost[d.Permission] = true
	case events.PermissionExpired:
		s.settle(d.Permission, settled{seq: e.Seq, by: e.Actor, how: "expired: " + d.Reason})
	case events.OpenCode:
		s.applyOpenCode(e, d)
	}
}

func (s *permissions) applyOpenCode(e events.Event, d events.OpenCode) {
	switch d.Type {
	case events.PermissionAsked:
		var a events.PermissionAsk
		if json.Unmarshal(d.Properties, &a) == nil && !s.intended(a.ID) {
			s.asks[a.ID] = ask{a.ID, a.SessionID, a.Tool.CallID, a.Permission, a.Command(), a.Request(), e.ID}
		}
	case events.PermissionReplied:
		var reply struct{ RequestID, Reply string }
		if json.Unmarshal(d.Properties, &reply) == nil && !s.intended(reply.RequestID) {
			s.settle(reply.RequestID, settled{seq: e.Seq, by: e.Actor, how: "answered in OpenCode: " + reply.Reply})
		}
	}
}

// settle keeps the decision when there is one: OpenCode's echo of it says nothing new.
func (s *permissions) settle(id string, by settled) {
	if _, ok := s.settled[id]; !ok {
		s.settled[id] = by
	}
}

// same says whether a person decided the same already, for the same reason.
func (how settled) same(c DecidePermission) bool {
	d := how.decided
	return d != nil && strings.HasPrefix(how.by, events.UserActor("")) && d.Decision == c.Decision && d.Reason == strings.TrimSpace(c.Reason)
}

// grant finds an interrupted ask for exactly this request that was authorized and not used since.
func (s *permissions) grant(request string) (permission string, by string) {
	for id, how := range s.settled {
		if d := how.decided; d != nil && d.Decision == events.Authorized && d.Request == request && s.lost[id] && !s.used[id] {
			return id, how.by
		}
	}
	return "", ""
}

// DecidePermission carries out the command.
func (h *Handlers) DecidePermission(ctx context.Context, c DecidePermission) (uint64, error) {
	if c.Decision != events.Authorized && c.Decision != events.Denied {
		return 0, refuseField(Invalid, "status", "decision: want %q or %q, got %q", events.Authorized, events.Denied, c.Decision)
	}
	if _, err := events.ParseID(c.Chat); err != nil {
		return 0, refuseField(Invalid, "chat", "chat: %v", err)
	}
	f := h.chatPermissions(ctx, c.Chat)
	return h.handleOn(ctx, c.Chat, c.Command, f, func() (events.Data, uint64, error) {
		return f.state.(*permissions).decide(c)
	})
}

func (h *Handlers) chatPermissions(ctx context.Context, chat string) *folded {
	return h.permissions.get(ctx, chat, func() *folded { return fold(newPermissions(), permissionFilters(chat)) })
}

// decide settles an ask. In a deleted chat the policy denies what is asked, and nobody decides anything else.
func (s *permissions) decide(c DecidePermission) (events.Data, uint64, error) {
	if s.deleted != 0 && (c.Actor != events.ActorPolicy || c.Decision != events.Denied) {
		return nil, 0, s.missing(c.Chat)
	}
	ask, known := s.asks[c.Permission]
	if !known {
		return nil, 0, refuse(NotFound, "there is no permission ask %s in chat %s", c.Permission, c.Chat)
	}
	if how, ok := s.settled[c.Permission]; ok {
		if c.ID != "" && how.cause == c.ID || how.same(c) {
			return nil, how.seq, nil
		}
		return nil, 0, refuseField(Conflict, "status", "permission %s is settled already: %s by %s", c.Permission, how.how, how.by)
	}
	return events.PermissionDecided{
		Permission: ask.id, Decision: c.Decision, Reason: strings.TrimSpace(c.Reason), RuleRef: events.RuleRef{Rule: c.Rule}, Grant: c.Grant,
		Session: ask.session, Call: ask.call, Type: ask.typ, Command: ask.command, Request: ask.request,
	}, 0, nil
}
