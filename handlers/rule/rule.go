// Package rule stores the rules of the policy as configuration records, and returns those in force.
//
// Promises: a rule that cannot be read allows nothing; if it may have denied or asked, it asks. A rule names its record
// and the event of its last change. A rule with a mistake is not stored.
//
// It must not know what a rule decides about a request.
package rule

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

// active is the default of a new rule: a rule that its author believes to be in force must be.
var active = map[string]any{"active": true}

// The rules of access to rules: every account sees records without a chat and a project, those of the chats that it
// reads, and those of the projects to which it has access. The owners of a chat and of a project change those of it.
// Agents never approve.
var (
	globalOrSeen = record.Rule(`@request.auth.id != "" && (chat = "" && project = "" || ` + record.SeesProject + ` || ` +
		record.SeesChat("chat.") + ` || ` + record.IsStaff + `)`)
	owner = record.Rule(`((` + record.OwnsChat("chat.") + ` || ` + record.OwnsProject +
		`) && @request.auth.role != "agent") || ` + record.IsAdmin)
)

// Types are the types of the records of rules.
var Types = []record.Type{
	{Name: ToolPermissions, Command: "policy", Title: "Rules", About: "which permission requests are decided without you",
		Access: record.Rules(globalOrSeen, globalOrSeen, owner, owner, owner),
		Unique: []string{"agent", "tool", "pattern", "chat", "project"}, Defaults: active, Complete: completeToolPermission,
		Fields: []record.Field{
			{Name: "agent", Kind: record.Relation, Label: "Agent", Relation: "ai_agents"},
			{Name: "tool", Kind: record.Text, Label: "Permission", Required: true},
			{Name: "pattern", Kind: record.Text, Label: "Pattern", Required: true},
			{Name: "action", Kind: record.Select, Label: "Action", Values: []string{"allow", "ask", "deny"}, Required: true},
			{Name: "active", Kind: record.Bool, Label: "In force", Switch: true},
			{Name: "chat", Kind: record.Relation, Label: "Chat", Relation: "chats"},
			{Name: "project", Kind: record.Relation, Label: "Project", Relation: "projects",
				About: "The rule holds for the chats of the project. A rule has a chat or a project, or it is for all."},
			{Name: "expires_at", Kind: record.Date, Label: "Expires"},
			{Name: "author", Kind: record.Relation, Label: "Author", Relation: "users", ReadOnly: true},
			{Name: "note", Kind: record.Text, Label: "Note", Lines: true},
		}},
	{Name: whitelistActions, Command: "policy", Title: "Allowed actions", About: "kinds of requests that are allowed for all chats",
		Access: record.Rules(record.Accounts, record.Accounts, record.Admins, record.Admins, record.Admins), Defaults: active,
		Complete: completeAction,
		Fields: []record.Field{
			{Name: "permission", Kind: record.Text, Label: "Permission", Required: true},
			{Name: "kind", Kind: record.Select, Label: "Kind", Values: []string{"strict", "pattern"}},
			{Name: "value", Kind: record.Text, Label: "Value"},
			{Name: "active", Kind: record.Bool, Label: "In force", Switch: true},
		}},
	{Name: whitelistTargets, Command: "policy", Title: "Allowed targets", About: "files that are allowed for all chats",
		Access: record.Rules(record.Accounts, record.Accounts, record.Admins, record.Admins, record.Admins), Defaults: active,
		Complete: completeTarget,
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "pattern", Kind: record.Text, Label: "Pattern", Required: true},
			{Name: "active", Kind: record.Bool, Label: "In force", Switch: true},
		}},
}

// completeToolPermission stores the author of a rule. Only administrators move a rule to another chat or project.
func completeToolPermission(c record.Change) error {
	if c.New {
		c.Stamp("author")
	} else if c.Changes("chat") && !c.Admin() {
		return record.Invalid("chat", "Only administrators move a rule to another chat.")
	} else if c.Changes("project") && !c.Admin() {
		return record.Invalid("project", "Only administrators move a rule to another project.")
	}
	if c.Text("chat") != "" && c.Text("project") != "" {
		return record.Invalid("project", "A rule holds for a chat or for a project, not for both.")
	}
	if c.Changes("expires_at") {
		if at, err := record.ParseDate(c.Text("expires_at")); err != nil || !at.IsZero() && !at.After(time.Now()) {
			return record.Invalid("expires_at", "Must be in the future.")
		}
	}
	r := policy.Rule{Permission: c.Text("tool"), Pattern: c.Text("pattern"), Action: policy.Action(c.Text("action"))}
	return checkChange(c, r.OfTool(), "tool", "pattern", "action")
}

// completeAction checks an action with a value. An action without one allows its permission on the targets.
func completeAction(c record.Change) error {
	value := c.Text("value")
	if i := strings.IndexByte(value, '*'); i >= 0 && c.Text("kind") == "strict" {
		return record.Invalid("value", "column %d: a strict value is compared literally and cannot contain *",
			len([]rune(value[:i]))+1)
	}
	if value == "" {
		return nil
	}
	return checkChange(c, policy.Rule{Permission: c.Text("permission"), Pattern: value}, "permission", "value", "kind")
}

// completeTarget checks a target, which is a path or a URL.
func completeTarget(c record.Change) error {
	r := policy.Rule{Permission: events.KindWrite, Pattern: c.Text("pattern")}
	if strings.Contains(r.Pattern, "://") {
		r.Permission = events.KindWebfetch
	}
	return checkChange(c, r, "name", "pattern")
}

// checkChange refuses a rule with a mistake if one of its fields changes. Otherwise it accepts an old rule with a
// mistake, so that the rule can be paused. others are further fields of the rule.
func checkChange(c record.Change, r policy.Rule, permission, pattern string, others ...string) error {
	if !c.Changes(append(others, permission, pattern)...) {
		return nil
	}
	err := Check(r)
	if refused := (handlers.Refused{}); errors.As(err, &refused) {
		refused.Field = map[string]string{"permission": permission, "pattern": pattern}[refused.Field]
		return refused
	}
	return err
}

// Check refuses a rule that cannot be read. If the pattern is wrong, the field is pattern and the text names the
// column. Otherwise the field is permission.
func Check(r policy.Rule) error {
	err := r.Check()
	if err == nil {
		return nil
	}
	field := "permission"
	if wrong := (*policy.SyntaxError)(nil); errors.As(err, &wrong) && wrong.Column > 0 {
		field = "pattern"
	}
	return handlers.RefuseField(handlers.Invalid, field, "%v", err)
}

// InForce returns the stored rules that are in force in a scope, oldest first.
func InForce(ctx context.Context, h *record.Records, s Scope) (rules []policy.Rule, err error) {
	if s.Seq == 0 {
		err = withBook(ctx, h, func(b *Book) { rules = b.InForce(s) })
		return rules, err
	}
	b := NewBook()
	for _, filter := range filters() {
		_, err := h.Log.Fold(ctx, filter, 0, func(e events.Event) error {
			if e.Seq > s.Seq {
				return events.ErrStop
			}
			b.Apply(e)
			return nil
		})
		if err != nil && !errors.Is(err, events.ErrStop) {
			return nil, err
		}
	}
	return b.InForce(s), nil
}

// Has reports whether there is a rule for a permission type, in force or not.
func Has(ctx context.Context, h *record.Records, permission string) (found bool, err error) {
	err = withBook(ctx, h, func(b *Book) { found = b.has(permission) })
	return found, err
}

// ChangeOf returns what an event of the configuration changed about the rules. The change is zero if the event does not
// concern a rule.
func ChangeOf(ctx context.Context, h *record.Records, e events.Event) (c Change, err error) {
	if !concerns(e.Subject.Collection) {
		return c, nil
	}
	err = withBook(ctx, h, func(b *Book) { c = b.change(e) })
	return c, err
}

// withBook calls fn with the rules as they are now.
func withBook(ctx context.Context, h *record.Records, fn func(*Book)) error {
	f := record.State(h, "rules", func() *handlers.Fold[*Book] { return handlers.NewFold(NewBook(), filters()...) })
	return f.Read(ctx, h.Log, func(b *Book) error { fn(b); return nil })
}

// AllowRule is a rule that allows something from now on, and for whom.
type AllowRule struct {
	handlers.Command
	Rule    policy.Rule
	Chat    string // empty is every chat
	Agent   string // record; empty is every agent
	Expires string // as a record has it; empty is never
	Note    string
}

// Allow stores the rule and returns its id, as policy.Rule has it. If the same rule is in force and lasts as long,
// Allow stores nothing.
func Allow(ctx context.Context, h *record.Records, c AllowRule) (id string, err error) {
	set := map[string]any{"active": true, "expires_at": c.Expires,
		"author": strings.TrimPrefix(c.Actor, events.UserActor("")), "note": c.Note}
	stored, lasts := "", false
	err = withBook(ctx, h, func(b *Book) { stored, lasts = b.allowing(c.Rule, c.Chat, c.Agent, c.Expires) })
	if err != nil || lasts {
		return ToolPermissions + "/" + stored, err
	}
	isNew := stored == ""
	if isNew {
		maps.Copy(set, map[string]any{"agent": c.Agent, "chat": c.Chat, "tool": c.Rule.Permission, "pattern": c.Rule.Pattern,
			"action": string(policy.Allow)})
	}
	stored, _, err = h.Save(ctx, record.Save{
		Command: c.Command, Collection: ToolPermissions, Record: stored, Set: record.Fields(set), New: isNew, Trusted: true,
	})
	return ToolPermissions + "/" + stored, err
}

// SavedBy returns the id of the rule that a command has stored, and its sequence: 0 if the command stored none.
func SavedBy(ctx context.Context, h *record.Records, command string) (id string, seq uint64, err error) {
	id, seq, err = h.SavedBy(ctx, ToolPermissions, command)
	return ToolPermissions + "/" + id, seq, err
}
