package records

import (
	"context"
	"encoding/json"

	"pocketcoder/handlers/budget"
)

// completeBudget refuses a budget that limits nothing.
func completeBudget(_ *Records, _ context.Context, w change) error {
	number := func(name string) (v float64) {
		if raw, given := w.set[name]; given {
			_ = json.Unmarshal(raw, &v) // it was checked to be one
			return v
		}
		v, _ = w.now(name).(float64)
		return v
	}
	return budget.Budget{Name: w.will("name"), Scope: w.will("scope"), Cost: number("cost"), Tokens: number("tokens")}.Check()
}
