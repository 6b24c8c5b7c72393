package records

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
	"pocketcoder/web/query/schema"
)

// The records that are rules of the policy are checked when they are written: one that cannot be read would match nothing,
// and nobody would notice.

// completeToolPermission stores the author of a rule. Only administrators move a rule to another chat.
func completeToolPermission(_ *Records, _ context.Context, w change) error {
	if w.isNew {
		w.set["author"] = api.MustJSON(w.who.Account)
	}
	changed := w.changed()
	if _, moves := changed["chat"]; moves && !w.isNew && !w.who.Is("admin") {
		return api.BadField("chat", "validation_invalid_value", "Only administrators move a rule to another chat.")
	}
	if raw, given := changed["expires_at"]; given {
		if at, ok := schema.ParseTime(textOf(raw)); ok && !at.After(time.Now()) {
			return api.BadField("expires_at", "validation_invalid_value", "Must be in the future.")
		}
	}
	r := record.Rule{Permission: w.will("tool"), Pattern: w.will("pattern"), Action: record.Action(w.will("action"))}
	return w.checkRule(r.OfTool(), "tool", "pattern", "action")
}

// completeWhitelistAction checks an action with a value. An action without one allows its permission on the targets.
func completeWhitelistAction(_ *Records, _ context.Context, w change) error {
	value := w.will("value")
	if i := strings.IndexByte(value, '*'); i >= 0 && w.will("kind") == "strict" {
		return api.BadField("value", "validation_invalid_value", "column %d: a strict value is meant as it is, without *", columnOf(value, i))
	}
	if value == "" {
		return nil
	}
	return w.checkRule(record.Rule{Permission: w.will("permission"), Pattern: value}, "permission", "value", "kind")
}

// completeWhitelistTarget checks a target, which is a path or a URL.
func completeWhitelistTarget(_ *Records, _ context.Context, w change) error {
	r := record.Rule{Permission: "write", Pattern: w.will("pattern")}
	if strings.Contains(r.Pattern, "://") {
		r.Permission = "webfetch"
	}
	return w.checkRule(r, "name", "pattern")
}

// checkRule refuses a rule with a mistake if one of its fields changes. Otherwise it accepts an old rule with a
// mistake, so that the rule can be paused. others are further fields of the rule.
func (w change) checkRule(r record.Rule, permission, pattern string, others ...string) error {
	changed := w.changed()
	if !slices.ContainsFunc(append(others, permission, pattern), func(name string) bool { _, given := changed[name]; return given }) {
		return nil
	}
	return ruleProblem(r, permission, pattern)
}

// ruleProblem names the field of a rule with a mistake, and the column.
func ruleProblem(r record.Rule, permission, pattern string) error {
	err := record.CheckRule(r)
	var refused handlers.Refused
	if !errors.As(err, &refused) {
		return err
	}
	field := permission
	if refused.Field == "pattern" {
		field = pattern
	}
	return api.BadField(field, "validation_invalid_value", "%s", refused.Text)
}

// columnOf is the column of a byte, in runes from 1.
func columnOf(s string, at int) int { return len([]rune(s[:at])) + 1 }
