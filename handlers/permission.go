package handlers

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/wire"
)

// DecidePermission answers a permission ask. The first decision wins; any other is refused. To say again what a person
// decided is no other.
type DecidePermission struct {
	Command
	Chat       string          `json:"chat"`
	Permission string          `json:"permission"` // OpenCode's per_… id, or that of a RequestPermission
	Decision   events.Decision `json:"decision"`
	Reason     string          `json:"reason,omitempty"` // shown to the model with a denial
	Edited     string          `json:"edited,omitempty"` // bash: what runs instead of the command that was asked for
	For        string          `json:"for,omitempty"`    // a Go duration such as "1h" after which an approval allows nothing; empty is for ever
	Shown                      // what the client showed; any other request is refused
	Client     events.Client   `json:"-"` // with which a person decides
	Rule       events.RuleRef  `json:"-"` // when the policy decides

	expires time.Time
	cwd     string                    // as the policy found it
	grant   *events.PermissionDecided // the approval of an interrupted ask that is used up
}

// Shown is what a client showed of a request when its user decided. Each empty field is not checked. A decision with a field that
// differs from the request is refused, so that an answer never reaches a request that its user has not seen.
type Shown struct {
	Command string `json:"shown_command,omitempty"` // bash: the command of the request, before any edit
	Request string `json:"shown_request,omitempty"` // SHA-256 of type, patterns and metadata: see events.PermissionAsk.Request
}

// check refuses a decision about a request that differs from what was shown.
func (s Shown) check(a ask) error {
	switch {
	case s.Command != "" && s.Command != a.command && a.typ != "bash":
		return refuseField(Conflict, "shown_command", "Request %s is not the one that was shown: it is for %s, not for a command. Nothing was decided.", a.id, a.typ)
	case s.Command != "" && s.Command != a.command:
		return refuseField(Conflict, "shown_command", "Request %s is not the one that was shown: its command is %q. Nothing was decided.", a.id, cut(a.command))
	case s.Request != "" && s.Request != a.request:
		return refuseField(Conflict, "shown_request", "Request %s is not the one that was shown: its hash is %s. Nothing was decided.", a.id, a.request)
	}
	return nil
}

// permissions is what the gate knows of a chat's asks.
type permissions struct {
	chatState
	asks     map[string]ask
	intents  map[string]intent   // those of the asks that came by RequestPermission
	referred map[string]referred // left to a person
	settled  map[string]settled  // decided, expired, or answered in OpenCode by somebody else
	lost     map[string]bool     // interrupted: OpenCode forgot the ask
	used     map[string]bool     // interrupted asks whose approval another ask has used up
	aborted  map[string]uint64   // sequence of the last abort of a session; of the whole chat under ""
}

// ask is what a decision repeats of what was asked, and the event that asked.
type ask struct {
	id, session, message, call, typ, command, request string
	event                                             string // its id
	seq                                               uint64
}

// referred says what the policy knew of an ask that it left to a person.
type referred struct {
	seq   uint64
	cwd   string
	hosts []string
	files []events.FileFingerprint
}

type settled struct {
	seq     uint64
	cause   string
	by      string
	decided *events.PermissionDecided
	how     string
}

func newPermissions() *permissions {
	return &permissions{
		asks: map[string]ask{}, intents: map[string]intent{}, referred: map[string]referred{}, settled: map[string]settled{},
		lost: map[string]bool{}, used: map[string]bool{}, aborted: map[string]uint64{},
	}
}

// permissionFilters are the subjects a decision is made on; the first is where decisions are.
func permissionFilters(chat string) []string {
	return []string{
		events.ChatSubject(chat, "permission.*"), events.ChatSubject(chat, "opencode.permission.*"), chatFilter(chat),
		events.ChatSubject(chat, events.AbortRequested{}.Kind()),
	}
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
	case events.PermissionReferred:
		s.referred[d.Permission] = referred{e.Seq, d.Cwd, d.Hosts, d.Files}
	case events.PermissionDecided:
		s.settled[d.Permission] = settled{e.Seq, e.Cause, e.Actor, &d, string(d.Decision)}
		if d.Grant != "" {
			s.used[d.Grant] = true
		}
	case events.PermissionInterrupted:
		s.lost[d.Permission] = true
	case events.PermissionExpired:
		s.settle(d.Permission, settled{seq: e.Seq, by: e.Actor, how: "expired: " + d.Reason})
	case events.AbortRequested:
		s.aborted[d.Session] = e.Seq
	case events.OpenCode:
		s.applyOpenCode(e, d)
	}
}

func (s *permissions) applyOpenCode(e events.Event, d events.OpenCode) {
	switch d.Type {
	case events.PermissionAsked:
		var a events.PermissionAsk
		if json.Unmarshal(d.Properties, &a) != nil {
			return
		}
		if _, known := s.asks[a.ID]; !known {
			s.asks[a.ID] = ask{a.ID, a.SessionID, a.Tool.MessageID, a.Tool.CallID, a.Permission, a.Command(), a.Request(), e.ID, e.Seq}
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
	return d != nil && strings.HasPrefix(how.by, events.UserActor("")) && d.Decision == c.Decision && d.Reason == strings.TrimSpace(c.Reason) &&
		d.Edited == edited(d.Command, c.Edited) && d.Expires.IsZero() == (c.For == "")
}

// abortedAfter says whether the turn of a session was aborted after an event.
func (s *permissions) abortedAfter(session string, seq uint64) bool {
	return max(s.aborted[""], s.aborted[session]) > seq
}

// over says whether the turn that waits for an ask was aborted.
func (s *permissions) over(a ask) bool {
	return !s.lost[a.id] && !s.intended(a.id) && s.abortedAfter(a.session, a.seq)
}

// void says why an approval allows nothing any more, "" when it does.
func (s *permissions) void(how settled, at time.Time) string {
	switch d := how.decided; {
	case !d.Expires.IsZero() && !at.Before(d.Expires):
		return "the approval expired at " + d.Expires.Format(time.RFC3339)
	case s.abortedAfter(d.Session, how.seq):
		return "the turn was aborted after the approval"
	}
	return ""
}

// grant finds an interrupted ask for exactly this request that was authorized and not used since. Where a command is to run is
// part of it, as far as it is known, and so is the state of the files that it changes.
func (s *permissions) grant(request, cwd string, files []events.FileFingerprint, at time.Time) (settled, bool) {
	for id, how := range s.settled {
		d := how.decided
		if d == nil || d.Decision != events.Authorized || d.Request != request || !s.lost[id] || s.used[id] || s.void(how, at) != "" ||
			d.Type == "bash" && d.Cwd != cwd {
			continue
		}
		if before := s.filesOf(id); len(before) == 0 || slices.Equal(before, files) {
			return how, true
		}
	}
	return settled{}, false
}

// DecidePermission carries out the command.
func (h *Handlers) DecidePermission(ctx context.Context, c DecidePermission) (uint64, error) {
	if err := c.check(h.Log.Redactor()); err != nil {
		return 0, err
	}
	if c.Decision == events.Denied { // also while the disk is almost full: the turn may be what fills it
		ctx = log.UseLastSpace(ctx)
	}
	f := h.chatPermissions(ctx, c.Chat)
	return h.handleOn(ctx, c.Chat, c.Command, f, func() (events.Data, uint64, error) {
		return f.state.(*permissions).decide(c)
	})
}

func (h *Handlers) chatPermissions(ctx context.Context, chat string) *folded {
	return h.permissions.get(ctx, chat, func() *folded { return fold(newPermissions(), permissionFilters(chat)) })
}

func (c *DecidePermission) check(secrets secret.Redactor) error {
	if c.Decision != events.Authorized && c.Decision != events.Denied {
		return refuseField(Invalid, "status", "decision: want %q or %q, got %q", events.Authorized, events.Denied, c.Decision)
	}
	if _, err := events.ParseID(c.Chat); err != nil {
		return refuseField(Invalid, "chat", "chat: %v", err)
	}
	if c.Decision == events.Denied && c.For+c.Edited != "" {
		return refuseField(Invalid, "status", "decision: a denial has no time and no other command")
	}
	if c.For != "" {
		lasts, err := duration("for", c.For)
		if err != nil {
			return err
		}
		c.expires = time.Now().UTC().Add(lasts).Truncate(time.Millisecond)
	}
	switch {
	case c.Edited == "":
	case strings.TrimSpace(c.Edited) == "":
		return refuseField(Invalid, "edited", "edited: the command is empty")
	case len(c.Edited) > wire.MaxCommand:
		return refuseField(Invalid, "edited", "edited: the command is %d bytes; the limit is %d", len(c.Edited), wire.MaxCommand)
	case !utf8.ValidString(c.Edited) || strings.ContainsRune(c.Edited, 0):
		return refuseField(Invalid, "edited", "edited: want UTF-8 without NUL")
	case string(secrets.Bytes([]byte(c.Edited))) != c.Edited:
		return refuseField(Invalid, "edited", "edited: the command holds a secret, which is never stored: it could not be told what ran")
	}
	return nil
}

// duration reads how long something lasts, as a person writes it.
func duration(field, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, refuseField(Invalid, field, "%s: want a time such as 30m or 1h, got %q", field, s)
	}
	return d, nil
}

// edited is what a decision says runs instead of the command: nothing when it is the same.
func edited(command, edited string) string {
	if edited == command {
		return ""
	}
	return edited
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
	if err := c.Shown.check(ask); err != nil {
		return nil, 0, err
	}
	if how, ok := s.settled[c.Permission]; ok {
		if c.ID != "" && how.cause == c.ID || how.same(c) {
			return nil, how.seq, nil
		}
		return nil, 0, refuseField(Conflict, "status", "permission %s is settled already: %s by %s", c.Permission, how.how, how.by)
	}
	if c.Decision == events.Authorized && s.over(ask) {
		return nil, 0, refuseField(Conflict, "status", "permission %s cannot be given: its turn was aborted", c.Permission)
	}
	if c.Edited != "" && ask.typ != "bash" {
		return nil, 0, refuseField(Invalid, "edited", "edited: permission %s is not for a command", c.Permission)
	}
	d := events.PermissionDecided{
		Permission: ask.id, Decision: c.Decision, Reason: strings.TrimSpace(c.Reason), RuleRef: c.Rule,
		Session: ask.session, Call: ask.call, Type: ask.typ, Command: ask.command, Request: ask.request,
		Cwd: c.cwd, Edited: edited(ask.command, c.Edited), Expires: c.expires, Client: c.Client,
	}
	if d.Cwd == "" {
		d.Cwd = s.referred[ask.id].cwd
	}
	if strings.HasPrefix(c.Actor, events.UserActor("")) && d.Decision == events.Authorized {
		d.Hosts = s.hosts(ask.id, d.Edited)
	}
	if g := c.grant; g != nil {
		d.Hosts = g.Hosts
		d.Grant, d.Edited, d.Expires = g.Permission, g.Edited, g.Expires
		d.Reason = "approved as " + g.Permission + ", which OpenCode forgot when it restarted"
		if g.Cwd != "" {
			d.Cwd = g.Cwd
		}
	}
	return d, 0, nil
}

// hosts returns the hosts that an approval of a command covers: those in the request, or those in the edited command.
func (s *permissions) hosts(id, edited string) (hosts []string) {
	if edited == "" {
		return s.referred[id].hosts
	}
	named, _ := policy.Reached(edited)
	for _, at := range named {
		hosts = append(hosts, at.String())
	}
	return hosts
}

// Honoured says whether an approval still allows anything: why not, or "" when it does. What was not authorized is honoured
// by doing nothing.
func (h *Handlers) Honoured(ctx context.Context, chat, permission string) (why string, err error) {
	f := h.chatPermissions(ctx, chat)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.advance(ctx, h.Log); err != nil {
		return "", err
	}
	s := f.state.(*permissions)
	how, ok := s.settled[permission]
	if !ok || how.decided == nil || how.decided.Decision != events.Authorized {
		return "nobody has approved it", nil
	}
	return s.void(how, time.Now()), nil
}
