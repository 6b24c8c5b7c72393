package permission

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/opencode"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/wire"
)

// Decide answers a permission ask. The first decision wins; any other is refused. To say again what a person
// decided is no other.
type Decide struct {
	handlers.Command
	Chat       string          `json:"chat"`
	Permission string          `json:"permission"` // OpenCode's per_… id, or that of a request over the API
	Decision   events.Decision `json:"decision"`
	Reason     string          `json:"reason,omitempty"` // shown to the model with a denial
	Edited     string          `json:"edited,omitempty"` // bash: what runs instead of the command that was asked for
	For        string          `json:"for,omitempty"`    // a Go duration such as "1h" after which an approval allows nothing; empty is for ever
	Shown                      // what the client showed; any other request is refused
	Client     events.Client   `json:"-"` // with which a person decides
	Admin      bool            `json:"-"` // an administrator or the operator decides
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
		return handlers.RefuseField(handlers.Conflict, "shown_command", "Request %s is not the one that was shown: it is for %s, not for a command. Nothing was decided.", a.id, a.typ)
	case s.Command != "" && s.Command != a.command:
		return handlers.RefuseField(handlers.Conflict, "shown_command", "Request %s is not the one that was shown: its command is %q. Nothing was decided.", a.id, cut(a.command))
	case s.Request != "" && s.Request != a.request:
		return handlers.RefuseField(handlers.Conflict, "shown_request", "Request %s is not the one that was shown: its hash is %s. Nothing was decided.", a.id, a.request)
	}
	return nil
}

// Permissions carries out the commands on permission requests, without a look at the rules: the Gate does that. The zero value but for
// Log is ready. It is safe for concurrent use.
type Permissions struct {
	Log *log.Log

	chats handlers.Folds[*State]
}

// cut returns the first bytes of a command for an error text.
func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), 256)], "\uFFFD") }

// State is what the gate knows of a chat's asks.
type State struct {
	handlers.ChatState
	asks     map[string]ask
	intents  map[string]intent   // those of the asks that came by RequestPermission
	referred map[string]referred // left to a person
	settled  map[string]Outcome  // decided, expired, or answered in OpenCode by somebody else
	lost     map[string]bool     // interrupted: OpenCode forgot the ask
	used     map[string]bool     // interrupted asks whose approval another ask has used up
	aborted  map[string]uint64   // sequence of the last abort of a session; of the whole chat under ""
}

// ask is what a decision repeats of what was asked, and the event that asked.
type ask struct {
	id, session, message, call, typ, command, request string
	event                                             string // its id
	seq                                               uint64
	administrators                                    bool // only they decide it
}

// referred says what the policy knew of an ask that it left to a person.
type referred struct {
	seq   uint64
	cwd   string
	hosts []string
	files []events.FileFingerprint
}

type Outcome struct {
	Seq     uint64
	cause   string
	By      string
	Decided *events.PermissionDecided
	how     string
}

func NewState() *State {
	return &State{
		asks: map[string]ask{}, intents: map[string]intent{}, referred: map[string]referred{}, settled: map[string]Outcome{},
		lost: map[string]bool{}, used: map[string]bool{}, aborted: map[string]uint64{},
	}
}

// Filters are the subjects a decision is made on; the first is where decisions are.
func Filters(chat string) []string {
	return []string{
		events.ChatSubject(chat, "permission.*"), events.ChatSubject(chat, "opencode.permission.*"), handlers.ChatFilter(chat),
		events.ChatSubject(chat, events.AbortRequested{}.Kind()),
	}
}

func (s *State) Apply(e events.Event) {
	s.ChatState.Apply(e)
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
		s.settled[d.Permission] = Outcome{e.Seq, e.Cause, e.Actor, &d, string(d.Decision)}
		if d.Grant != "" {
			s.used[d.Grant] = true
		}
	case events.PermissionInterrupted:
		s.lost[d.Permission] = true
	case events.PermissionExpired:
		s.settle(d.Permission, Outcome{Seq: e.Seq, By: e.Actor, how: "expired: " + d.Reason})
	case events.AbortRequested:
		s.aborted[d.Session] = e.Seq
	case events.OpenCode:
		s.applyOpenCode(e, d)
	}
}

func (s *State) applyOpenCode(e events.Event, d events.OpenCode) {
	switch d.Type {
	case events.PermissionAsked:
		a, err := opencode.Read[events.PermissionAsk](d)
		if err != nil {
			return
		}
		if _, known := s.asks[a.ID]; !known {
			s.asks[a.ID] = ask{a.ID, a.SessionID, a.Tool.MessageID, a.Tool.CallID, a.Permission, a.Command(), a.Request(), e.ID, e.Seq, false}
		}
	case events.PermissionReplied:
		if reply, err := opencode.Read[opencode.PermissionReplied](d); err == nil && !s.intended(reply.RequestID) {
			s.settle(reply.RequestID, Outcome{Seq: e.Seq, By: e.Actor, how: "answered in OpenCode: " + reply.Reply})
		}
	}
}

// settle keeps the decision when there is one: OpenCode's echo of it says nothing new.
func (s *State) settle(id string, by Outcome) {
	if _, ok := s.settled[id]; !ok {
		s.settled[id] = by
	}
}

// same says whether a person decided the same already, for the same reason.
func (how Outcome) same(c Decide) bool {
	d := how.Decided
	return d != nil && strings.HasPrefix(how.By, events.UserActor("")) && d.Decision == c.Decision && d.Reason == strings.TrimSpace(c.Reason) &&
		d.Edited == edited(d.Command, c.Edited) && d.Expires.IsZero() == (c.For == "")
}

// Outcome returns how a request ended; ok is false while it has not.
func (s *State) Outcome(id string) (o Outcome, ok bool) {
	o, ok = s.settled[id]
	return o, ok
}

// RequestEvent returns the id of the event with which a request was made, "" for an unknown request.
func (s *State) RequestEvent(id string) string { return s.asks[id].event }

// WasInterrupted reports whether OpenCode forgot a request.
func (s *State) WasInterrupted(id string) bool { return s.lost[id] }

// CommandDecision returns the last decision about a command that a call of OpenCode's requested, and the id of the request. A model may
// use the id of a call again. A request that was made over the API does not count, because its author could have named any session and
// call.
func (s *State) CommandDecision(session, call string) (id string, o Outcome) {
	for other, by := range s.settled {
		d := by.Decided
		if !s.intended(other) && d != nil && d.Type == "bash" && d.Session == session && d.Call == call && by.Seq > o.Seq {
			id, o = other, by
		}
	}
	return id, o
}

// AbortedAfter says whether the turn of a session was aborted after an event.
func (s *State) AbortedAfter(session string, seq uint64) bool {
	return max(s.aborted[""], s.aborted[session]) > seq
}

// over says whether the turn that waits for an ask was aborted.
func (s *State) over(a ask) bool {
	return !s.lost[a.id] && !s.intended(a.id) && s.AbortedAfter(a.session, a.seq)
}

// Void says why an approval allows nothing any more, "" when it does.
func (s *State) Void(how Outcome, at time.Time) string {
	switch d := how.Decided; {
	case !d.Expires.IsZero() && !at.Before(d.Expires):
		return "the approval expired at " + d.Expires.Format(time.RFC3339)
	case s.AbortedAfter(d.Session, how.Seq):
		return "the turn was aborted after the approval"
	}
	return ""
}

// grant finds an interrupted ask for exactly this request that was authorized and not used since. Where a command is to run is
// part of it, as far as it is known, and so is the state of the files that it changes.
func (s *State) grant(request, cwd string, files []events.FileFingerprint, at time.Time) (Outcome, bool) {
	for id, how := range s.settled {
		d := how.Decided
		if d == nil || d.Decision != events.Authorized || d.Request != request || !s.lost[id] || s.used[id] || s.Void(how, at) != "" ||
			d.Type == "bash" && d.Cwd != cwd {
			continue
		}
		if before := s.filesOf(id); len(before) == 0 || slices.Equal(before, files) {
			return how, true
		}
	}
	return Outcome{}, false
}

// Decide carries out the command.
func (h *Permissions) Decide(ctx context.Context, c Decide) (uint64, error) {
	if err := c.check(h.Log.Redactor()); err != nil {
		return 0, err
	}
	if c.Decision == events.Denied { // also while the disk is almost full: the turn may be what fills it
		ctx = log.UseLastSpace(ctx)
	}
	return h.Chat(ctx, c.Chat).CarryOutOne(ctx, h.Log, c.Chat, c.Command, func(s *State) (events.Data, uint64, error) {
		return s.Decide(c)
	})
}

// Chat returns the kept fold of a chat's permission requests.
func (h *Permissions) Chat(ctx context.Context, chat string) *handlers.Fold[*State] {
	return h.chats.Get(ctx, chat, func() *handlers.Fold[*State] { return handlers.NewFold(NewState(), Filters(chat)...) })
}

func (c *Decide) check(secrets secret.Redactor) error {
	if c.Decision != events.Authorized && c.Decision != events.Denied {
		return handlers.RefuseField(handlers.Invalid, "status", "decision: want %q or %q, got %q", events.Authorized, events.Denied, c.Decision)
	}
	if err := handlers.CheckChat(c.Chat); err != nil {
		return err
	}
	if c.Decision == events.Denied && c.For+c.Edited != "" {
		return handlers.RefuseField(handlers.Invalid, "status", "decision: a denial has no time and no other command")
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
		return handlers.RefuseField(handlers.Invalid, "edited", "edited: the command is empty")
	case len(c.Edited) > wire.MaxCommand:
		return handlers.RefuseField(handlers.Invalid, "edited", "edited: the command is %d bytes; the limit is %d", len(c.Edited), wire.MaxCommand)
	case !utf8.ValidString(c.Edited) || strings.ContainsRune(c.Edited, 0):
		return handlers.RefuseField(handlers.Invalid, "edited", "edited: want UTF-8 without NUL")
	case string(secrets.Bytes([]byte(c.Edited))) != c.Edited:
		return handlers.RefuseField(handlers.Invalid, "edited", "edited: the command contains a secret. Secrets are not stored, so the log could not show what ran. Leave the secret out.")
	}
	return nil
}

// duration reads how long something lasts, as a person writes it.
func duration(field, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, handlers.RefuseField(handlers.Invalid, field, "%s: want a time such as 30m or 1h, got %q", field, s)
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

// Decide settles an ask. In a deleted chat the policy denies what is asked, and nobody decides anything else.
func (s *State) Decide(c Decide) (events.Data, uint64, error) {
	if s.Deleted != 0 && (c.Actor != events.ActorPolicy || c.Decision != events.Denied) {
		return nil, 0, s.Missing(c.Chat)
	}
	ask, known := s.asks[c.Permission]
	if !known {
		return nil, 0, handlers.Refuse(handlers.NotFound, "there is no permission ask %s in chat %s", c.Permission, c.Chat)
	}
	if ask.administrators && !c.Admin && c.Actor != events.ActorPolicy {
		return nil, 0, handlers.RefuseField(handlers.Invalid, "status", "Only an administrator decides about this budget.")
	}
	if err := c.Shown.check(ask); err != nil {
		return nil, 0, err
	}
	if how, ok := s.settled[c.Permission]; ok {
		if c.ID != "" && how.cause == c.ID || how.same(c) {
			return nil, how.Seq, nil
		}
		return nil, 0, handlers.RefuseField(handlers.Conflict, "status", "permission %s is settled already: %s by %s", c.Permission, how.how, how.By)
	}
	if c.Decision == events.Authorized && s.over(ask) {
		return nil, 0, handlers.RefuseField(handlers.Conflict, "status", "permission %s cannot be given: its turn was aborted", c.Permission)
	}
	if c.Edited != "" && ask.typ != "bash" {
		return nil, 0, handlers.RefuseField(handlers.Invalid, "edited", "edited: permission %s is not for a command", c.Permission)
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
func (s *State) hosts(id, edited string) (hosts []string) {
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
func (h *Permissions) Honoured(ctx context.Context, chat, permission string) (why string, err error) {
	err = h.Chat(ctx, chat).Read(ctx, h.Log, func(s *State) error {
		how, ok := s.settled[permission]
		if !ok || how.Decided == nil || how.Decided.Decision != events.Authorized {
			why = "it was not approved"
		} else {
			why = s.Void(how, time.Now())
		}
		return nil
	})
	return why, err
}

// ChangedFiles returns a sentence for the model if files of an approved request differ from what they were when the policy left the
// request to a person. It returns "" if none differs, or if the policy decided at once. It names files relative to directory.
func (h *Permissions) ChangedFiles(ctx context.Context, chat, permission, directory string) (why string, err error) {
	var before []events.FileFingerprint
	err = h.Chat(ctx, chat).Read(ctx, h.Log, func(s *State) error { before = s.filesOf(permission); return nil })
	if err != nil {
		return "", err
	}
	switch changed := workspace.ChangedFiles(before, directory); len(changed) {
	case 0:
		return "", nil
	case 1:
		return changed[0] + " changed while the request waited. Read it again.", nil
	default:
		return strings.Join(changed, ", ") + " changed while the request waited. Read them again.", nil
	}
}

// filesOf returns the fingerprints for which a request was approved. A request that used the approval of an interrupted one has the
// fingerprints of that one.
func (s *State) filesOf(permission string) []events.FileFingerprint {
	for range len(s.settled) + 1 {
		if files := s.referred[permission].files; len(files) > 0 {
			return files
		}
		how := s.settled[permission]
		if how.Decided == nil || how.Decided.Grant == "" {
			return nil
		}
		permission = how.Decided.Grant
	}
	return nil
}
