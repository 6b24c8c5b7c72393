package handlers

import (
	"errors"

	"pocketcoder/handlers/policy"
)

// A rule of the policy and what it says, for those who know the policy by its handlers alone.
type (
	Rule   = policy.Rule
	Action = policy.Action
)

// CheckRule refuses a rule that cannot be read. The field is pattern, and the text names the column, where that is at fault;
// else it is permission.
func CheckRule(r Rule) error {
	err := r.Check()
	if err == nil {
		return nil
	}
	field := "permission"
	if wrong := (*policy.SyntaxError)(nil); errors.As(err, &wrong) && wrong.Column > 0 {
		field = "pattern"
	}
	return refuseField(Invalid, field, "%v", err)
}
