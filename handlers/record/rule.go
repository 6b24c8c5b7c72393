package record

import (
	"context"
	"errors"
	"maps"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record/rulebook"
)

// A rule of the policy, and its action, for packages that must not import policy.
type (
	Rule   = policy.Rule
	Action = policy.Action
)

// CheckRule refuses a rule that cannot be read. If the pattern is wrong, the field is pattern and the text names the
// column. Otherwise the field is permission.
func CheckRule(r Rule) error {
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

// Rules returns the stored rules that are in force in a scope, oldest first.
func (h *Records) Rules(ctx context.Context, s rulebook.Scope) (rules []policy.Rule, err error) {
	if s.Seq == 0 {
		err = h.withRules(ctx, func(b *rulebook.Book) { rules = b.InForce(s) })
		return rules, err
	}
	b := rulebook.New()
	for _, filter := range rulebook.Filters() {
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

// HasRules reports whether there is a rule for a permission type, in force or not.
func (h *Records) HasRules(ctx context.Context, permission string) (found bool, err error) {
	err = h.withRules(ctx, func(b *rulebook.Book) { found = b.Has(permission) })
	return found, err
}

// RuleChange returns what an event of the configuration changed about the rules. The change is zero if the event does
// not concern a rule.
func (h *Records) RuleChange(ctx context.Context, e events.Event) (c rulebook.Change, err error) {
	if !rulebook.Concerns(e.Subject.Collection) {
		return c, nil
	}
	err = h.withRules(ctx, func(b *rulebook.Book) { c = b.Change(e) })
	return c, err
}

// withRules calls fn with the rules as they are now.
func (h *Records) withRules(ctx context.Context, fn func(*rulebook.Book)) error {
	f := h.rules.Get(ctx, "", func() *handlers.Fold[*rulebook.Book] {
		return handlers.NewFold(rulebook.New(), rulebook.Filters()...)
	})
	return f.Read(ctx, h.Log, func(b *rulebook.Book) error { fn(b); return nil })
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

// AllowRule stores the rule and returns its id, as policy.Rule has it. If the same rule is in force and lasts as long,
// AllowRule stores nothing.
func (h *Records) AllowRule(ctx context.Context, c AllowRule) (rule string, err error) {
	set := map[string]any{"active": true, "expires_at": c.Expires,
		"author": strings.TrimPrefix(c.Actor, events.UserActor("")), "note": c.Note}
	record, lasts := "", false
	err = h.withRules(ctx, func(b *rulebook.Book) {
		record, lasts = b.Allowing(c.Rule, c.Chat, c.Agent, c.Expires)
	})
	if err != nil || lasts {
		return rulebook.ToolPermissions + "/" + record, err
	}
	isNew := record == ""
	if isNew {
		maps.Copy(set, map[string]any{"agent": c.Agent, "chat": c.Chat, "tool": c.Rule.Permission, "pattern": c.Rule.Pattern,
			"action": string(policy.Allow)})
	}
	record, _, err = h.Save(ctx, Save{
		Command: c.Command, Collection: rulebook.ToolPermissions, Record: record, Set: Fields(set), New: isNew,
	})
	return rulebook.ToolPermissions + "/" + record, err
}

// SavedRule returns the id of the rule that a command has stored, and its sequence: 0 if the command stored none.
func (h *Records) SavedRule(ctx context.Context, command string) (rule string, seq uint64, err error) {
	err = h.collection(ctx, rulebook.ToolPermissions).Read(ctx, h.Log, func(s *collection) error {
		if saved, ok := s.saved[command]; ok {
			rule, seq = rulebook.ToolPermissions+"/"+saved.record, saved.seq
		}
		return nil
	})
	return rule, seq, err
}
