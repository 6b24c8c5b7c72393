package permission

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/wire"
)

// Decide is the command to decide a permission request. The first decision wins. A different later decision is
// refused; repeating a person's decision has no effect.
type Decide struct {
	handlers.Command
	Chat       string          `json:"chat"`
	Permission string          `json:"permission"` // OpenCode's per_… id, or that of a request over the API
	Decision   events.Decision `json:"decision"`
	Reason     string          `json:"reason,omitempty"` // shown to the model with a denial
	Edited     string          `json:"edited,omitempty"` // bash: what runs instead of the command that was asked for
	// a Go duration such as "1h" after which an approval allows nothing; empty is for ever
	For          string         `json:"for,omitempty"`
	ShownRequest                // what the client showed; any other request is refused
	Client       events.Client  `json:"-"` // with which a person decides
	Admin        bool           `json:"-"` // an administrator or the operator decides
	Rule         events.RuleRef `json:"-"` // when the policy decides

	expires time.Time
	cwd     string                    // that the policy found
	files   []events.FileFingerprint  // that the command names
	grant   *events.PermissionDecided // the approval of an interrupted request, which this decision uses
}

// ShownRequest is the content of a request that a client showed when its user decided. An empty field is not checked. A
// decision is refused if a field differs from the request, so that a decision never applies to a request that its user
// has not seen.
type ShownRequest struct {
	Command string `json:"shown_command,omitempty"` // bash: the command of the request, before any edit
	// SHA-256 of type, patterns and metadata: see events.PermissionRequest.ContentHash
	Request string `json:"shown_request,omitempty"`
	Files   string `json:"shown_files,omitempty"` // bash: events.HashFiles of the files that were shown
}

// check refuses a decision about a request that differs from what was shown.
func (s ShownRequest) check(r Request) error {
	switch {
	case s.Command != "" && s.Command != r.Command && r.Type != events.KindBash:
		return handlers.RefuseField(handlers.Conflict, "shown_command",
			"Request %s is not the one that was shown: it is for %s, not for a command. Nothing was decided.", r.ID, r.Type)
	case s.Command != "" && s.Command != r.Command:
		return handlers.RefuseField(handlers.Conflict, "shown_command",
			"Request %s is not the one that was shown: its command is %q. Nothing was decided.", r.ID, cut(r.Command))
	case s.Request != "" && s.Request != r.Hash:
		return handlers.RefuseField(handlers.Conflict, "shown_request",
			"Request %s is not the one that was shown: its hash is %s. Nothing was decided.", r.ID, r.Hash)
	case s.Files != "" && s.Files != events.HashFiles(r.Escalation.Files):
		return handlers.RefuseField(handlers.Conflict, "shown_files",
			"The files of request %s are not those that were shown. Nothing was decided. Look at the request again.", r.ID)
	}
	return nil
}

// Permissions carries out the commands on permission requests. It does not read the rules; the Gate does. Only Log must
// be set. It is safe for concurrent use.
type Permissions struct {
	Log *log.Log

	chats     handlers.Folds[*State]
	originals originals
}

// cut returns the first bytes of a command for an error text.
func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), 256)], "\uFFFD") }

// String returns how a request ended.
func (outcome Outcome) String() string {
	switch {
	case outcome.Decided != nil:
		return outcome.Status
	case outcome.Status == events.Expired:
		return events.Expired + ": " + outcome.Reason
	}
	return outcome.Reason + ": " + outcome.Status
}

// same reports whether a person has already made the decision of c, for the same reason.
func (outcome Outcome) same(c Decide) bool {
	d := outcome.Decided
	return d != nil && strings.HasPrefix(outcome.By, events.UserActor("")) && d.Decision == c.Decision &&
		d.Reason == strings.TrimSpace(c.Reason) &&
		d.Edited == edited(d.Command, c.Edited) && d.Expires.IsZero() == (c.For == "")
}

// Decide records the decision of a person, if none is recorded. It returns the sequence of the decision.
func (h *Permissions) Decide(ctx context.Context, c Decide) (uint64, error) {
	if err := c.check(h.Log.Redactor()); err != nil {
		return 0, err
	}
	if c.Decision == events.Denied { // also while the disk is almost full: the turn may be what fills it
		ctx = log.UseLastSpace(ctx)
	}
	return h.Chat(ctx, c.Chat).ExecuteOne(ctx, h.Log, c.Chat, c.Command, func(s *State) (events.Data, uint64, error) {
		return s.Decide(c)
	})
}

func (c *Decide) check(secrets secret.Redactor) error {
	if c.Decision != events.Authorized && c.Decision != events.Denied {
		return handlers.RefuseField(handlers.Invalid, "status", "decision: want %q or %q, got %q", events.Authorized,
			events.Denied, c.Decision)
	}
	if err := handlers.CheckChat(c.Chat); err != nil {
		return err
	}
	if c.Decision == events.Denied && c.For+c.Edited != "" {
		return handlers.RefuseField(handlers.Invalid, "status",
			"decision: a denial accepts neither a duration nor an edited command")
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
		return handlers.RefuseField(handlers.Invalid, "edited", "edited: the command is %d bytes; the limit is %d",
			len(c.Edited), wire.MaxCommand)
	case !utf8.ValidString(c.Edited) || strings.ContainsRune(c.Edited, 0):
		return handlers.RefuseField(handlers.Invalid, "edited", "edited: want UTF-8 without NUL")
	case string(secrets.Bytes([]byte(c.Edited))) != c.Edited:
		return handlers.RefuseField(handlers.Invalid, "edited",
			"edited: the command contains a secret. Secrets are not stored, so the log could not show what ran. Leave the secret out.")
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

// edited returns the edited command, "" if it does not differ from the command.
func edited(command, edited string) string {
	if edited == command {
		return ""
	}
	return edited
}

// Decide decides a request. In a deleted chat only the policy decides, and only to deny.
func (s *State) Decide(c Decide) (events.Data, uint64, error) {
	if s.Deleted != 0 && (c.Actor != events.ActorPolicy || c.Decision != events.Denied) {
		return nil, 0, s.Missing(c.Chat)
	}
	r := s.Request(c.Permission)
	if r.Seq == 0 {
		return nil, 0, handlers.Refuse(handlers.NotFound, "there is no permission request %s in chat %s", c.Permission,
			c.Chat)
	}
	if r.administrators && !c.Admin && c.Actor != events.ActorPolicy {
		return nil, 0, handlers.RefuseField(handlers.Invalid, "status", "Only an administrator decides about this budget.")
	}
	if r.Item != "" && !strings.HasPrefix(c.Actor, events.UserActor("")) && s.Deleted == 0 {
		return nil, 0, handlers.RefuseField(handlers.Invalid, "status", "Only a person decides whether a file is kept.")
	}
	if err := c.ShownRequest.check(r); err != nil {
		return nil, 0, err
	}
	if outcome := r.Outcome; !r.Pending() {
		if c.ID != "" && outcome.cause == c.ID || outcome.same(c) {
			return nil, outcome.Seq, nil
		}
		return nil, 0, handlers.RefuseField(handlers.Conflict, "status", "permission %s has been decided already: %s by %s",
			c.Permission, outcome, outcome.By)
	}
	if c.Decision == events.Authorized && s.over(r) {
		return nil, 0, handlers.RefuseField(handlers.Conflict, "status",
			"permission %s cannot be approved: its turn was aborted", c.Permission)
	}
	if c.Edited != "" && r.Type != events.KindBash {
		return nil, 0, handlers.RefuseField(handlers.Invalid, "edited",
			"edited: permission %s is not for a command, so it has no command to edit", c.Permission)
	}
	d := events.PermissionDecided{
		Permission: r.ID, Decision: c.Decision, Reason: strings.TrimSpace(c.Reason), RuleRef: c.Rule,
		Session: r.Session, Call: r.Call, Type: r.Type, Command: r.Command, Request: r.Hash,
		Cwd: cmp.Or(c.cwd, r.Escalation.Cwd), Edited: edited(r.Command, c.Edited), Expires: c.expires, Client: c.Client,
	}
	if strings.HasPrefix(c.Actor, events.UserActor("")) && d.Decision == events.Authorized {
		d.Hosts, d.Files = r.hosts(d.Edited), c.files
	}
	if g := c.grant; g != nil {
		d.Hosts, d.Files = g.Hosts, g.Files
		d.ApprovalOf, d.Edited, d.Expires = g.Permission, g.Edited, g.Expires
		d.Reason = "approved as " + g.Permission + ", which OpenCode forgot when it restarted"
		d.Cwd = cmp.Or(g.Cwd, d.Cwd)
	}
	return d, 0, nil
}

// hosts returns the hosts that an approval of a command covers: those in the request, or those in the edited command.
func (r Request) hosts(edited string) (hosts []string) {
	if edited == "" {
		return r.Escalation.Hosts
	}
	named, _ := policy.NamedHosts(edited)
	for _, at := range named {
		hosts = append(hosts, at.String())
	}
	return hosts
}

// CheckApproval returns why an approval is no longer valid, "" if it is valid. It fails if the replica of the log that
// answers does not have the decision yet.
func (h *Permissions) CheckApproval(ctx context.Context, chat, permission string) (why string, err error) {
	err = h.Chat(ctx, chat).Read(ctx, h.Log, func(s *State) error {
		switch outcome := s.Request(permission).Outcome; {
		case outcome.Decided == nil:
			return fmt.Errorf("check the approval of %s: the decision is not there yet", permission)
		case outcome.Decided.Decision != events.Authorized:
			why = "it was not approved"
		default:
			why = s.WhyInvalid(outcome, time.Now())
		}
		return nil
	})
	return why, err
}

// ChangedFiles returns a sentence for the model if files of an approved request differ from what they were when the
// policy left the request to a person. It returns "" if none differs, or if the policy decided at once. It names files
// relative to directory. The files of a command count only if a person approved it.
func (h *Permissions) ChangedFiles(ctx context.Context, chat, permission, directory string) (why string, err error) {
	var before []events.FileFingerprint
	err = h.Chat(ctx, chat).Read(ctx, h.Log, func(s *State) error {
		switch outcome := s.Request(permission).Outcome; {
		case s.Request(permission).Type == events.KindBash && outcome.By == events.ActorPolicy:
		case outcome.Decided != nil && outcome.Decided.Edited != "":
			before = outcome.Decided.Files
		default:
			before = s.filesOf(permission)
		}
		return nil
	})
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
