package record

import (
	"math"
	"strings"
)

// BudgetCollection is the config collection of the limits on spending.
const BudgetCollection = "budgets"

// The scopes of a budget.
const (
	BudgetOfChat = "chat" // all that a chat spends
	BudgetOfDay  = "day"  // spending from midnight to midnight UTC
)

// maxAmount keeps amounts in the range in which a float64 represents every integer.
const maxAmount = 1 << 50

// minAmount keeps the ratio of spending to a limit in a sensible range.
const minAmount = 1e-6

// CheckBudget refuses a budget that limits nothing, or cannot be read.
func CheckBudget(name, scope string, cost, tokens float64) error {
	amount := func(field string, v float64) error {
		if math.IsNaN(v) || v < 0 || v > maxAmount || v > 0 && v < minAmount {
			return invalid(field, "%s: want 0 (no limit), or a number from %v to %d", field, minAmount, int64(maxAmount))
		}
		return nil
	}
	switch {
	case strings.TrimSpace(name) == "":
		return invalid("name", "name: a budget needs one")
	case scope != BudgetOfChat && scope != BudgetOfDay:
		return invalid("scope", "scope: want %q or %q, got %q", BudgetOfChat, BudgetOfDay, scope)
	case tokens != math.Trunc(tokens):
		return invalid("tokens", "tokens: want a whole number")
	case cost == 0 && tokens == 0:
		return invalid("cost", "cost, tokens: a budget needs one of them above 0")
	}
	if err := amount("cost", cost); err != nil {
		return err
	}
	return amount("tokens", tokens)
}
