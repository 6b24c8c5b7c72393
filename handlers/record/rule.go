package record

import (
	"context"
	"errors"
	"maps"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
)

// A rule of the policy and what it says, for those who know the policy by its handlers alone.
type (
	Rule   = policy.Rule
	Action = policy.Action
)

// CheckRule refuses a rule that cannot be read. The field is pattern, and the text names the column, where that is at
// fault; else it is permission.
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
	record, isNew, lasts := "", true, false
	err = h.withRulebook(ctx, func(b *rulebook) {
		for id, k := range b.rules {
			if k.rule.Permission != c.Rule.Permission || k.rule.Pattern != c.Rule.Pattern || k.rule.Action != policy.Allow ||
				k.chat != c.Chat || k.agent != c.Agent {
				continue
			}
			until, _ := parseDate(c.Expires)
			record, isNew = id, false
			lasts = k.active && k.broken == nil && (k.expires.IsZero() || c.Expires != "" && !k.expires.Before(until))
		}
	})
	if err != nil || lasts {
		return toolPermissions + "/" + record, err
	}
	if isNew {
		maps.Copy(set, map[string]any{"agent": c.Agent, "chat": c.Chat, "tool": c.Rule.Permission, "pattern": c.Rule.Pattern,
			"action": string(policy.Allow)})
	}
	record, _, err = h.Save(ctx, Save{
		Command: c.Command, Collection: toolPermissions, Record: record, Set: mustFields(set), New: isNew,
	})
	return toolPermissions + "/" + record, err
}

// SavedRule returns the id of the rule that a command has stored, and its sequence: 0 if the command stored none.
func (h *Records) SavedRule(ctx context.Context, command string) (rule string, seq uint64, err error) {
	err = h.collection(ctx, toolPermissions).Read(ctx, h.Log, func(s *collection) error {
		if saved, ok := s.saved[command]; ok {
			rule, seq = toolPermissions+"/"+saved.record, saved.seq
		}
		return nil
	})
	return rule, seq, err
}

// AgentNamed returns the id of the record of an agent.
func (h *Records) AgentNamed(ctx context.Context, name string) (record string, err error) {
	err = h.withRulebook(ctx, func(b *rulebook) {
		for id, agent := range b.agents {
			if agent.name == name && name != "" && !agent.deleted {
				record = id
			}
		}
	})
	if err == nil && record == "" {
		err = handlers.RefuseField(handlers.Invalid, "scope", "scope: no agent of the name %q is kept", name)
	}
	return record, err
}
