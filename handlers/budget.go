package handlers

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
)

// BudgetCollection is the config collection of the limits on what is spent.
const BudgetCollection = "budgets"

// The scopes of a budget.
const (
	BudgetOfChat = "chat" // what a chat spends in all
	BudgetOfDay  = "day"  // what is spent from midnight to midnight UTC
)

// Budget is a limit on what may be spent, a record of BudgetCollection. What subagents spend counts to their chat.
type Budget struct {
	ID     string  `json:"id,omitempty"`
	Name   string  `json:"name"`
	Scope  string  `json:"scope"`
	Chat   string  `json:"chat,omitempty"`   // that it is about; empty for each chat by itself, of scope day for all together
	User   string  `json:"user,omitempty"`   // whose chats it is about; empty for everybody's
	Cost   float64 `json:"cost,omitempty"`   // in the provider's currency, 0 is no limit
	Tokens float64 `json:"tokens,omitempty"` // input, output and reasoning, 0 is no limit
	Active bool    `json:"active"`

	seq uint64 // of the event that made it so
}

// maxAmount keeps amounts where a float64 counts one by one.
const maxAmount = 1 << 50

// minAmount keeps what is spent a sensible multiple of a limit.
const minAmount = 1e-6

// Check refuses a budget that limits nothing, or cannot be read.
func (b Budget) Check() error {
	amount := func(field string, v float64) error {
		if math.IsNaN(v) || v < 0 || v > maxAmount || v > 0 && v < minAmount {
			return refuseField(Invalid, field, "%s: want 0 (no limit), or a number from %v to %d", field, minAmount, int64(maxAmount))
		}
		return nil
	}
	switch {
	case strings.TrimSpace(b.Name) == "":
		return refuseField(Invalid, "name", "name: a budget needs one")
	case b.Scope != BudgetOfChat && b.Scope != BudgetOfDay:
		return refuseField(Invalid, "scope", "scope: want %q or %q, got %q", BudgetOfChat, BudgetOfDay, b.Scope)
	case b.Tokens != math.Trunc(b.Tokens):
		return refuseField(Invalid, "tokens", "tokens: want a whole number")
	case b.Cost == 0 && b.Tokens == 0:
		return refuseField(Invalid, "cost", "cost, tokens: a budget needs one of them above 0")
	}
	if err := amount("cost", b.Cost); err != nil {
		return err
	}
	return amount("tokens", b.Tokens)
}

// Budgets lists the budgets, by name. One that is not valid is left out: it was refused when it was made, so somebody wrote
// past this package.
func (h *Handlers) Budgets(ctx context.Context) ([]Budget, error) {
	f := h.collection(ctx, BudgetCollection)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.advance(ctx, h.Log); err != nil {
		return nil, err
	}
	list := []Budget{}
	for id, r := range f.state.(*collection).records {
		if b, ok := r.budget(); ok && !r.deleted {
			b.ID, b.seq = id, r.seq
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b Budget) int { return strings.Compare(a.Name+"\x00"+a.ID, b.Name+"\x00"+b.ID) })
	return list, nil
}

func (r record) budget() (b Budget, ok bool) {
	body, err := json.Marshal(r.fields)
	return b, err == nil && json.Unmarshal(body, &b) == nil && b.Check() == nil
}

// SetBudget makes the budget of a name, or makes it what is given.
type SetBudget struct {
	Command
	Budget Budget `json:"budget"`
}

// SetBudget carries out the command.
func (h *Handlers) SetBudget(ctx context.Context, c SetBudget) (id string, seq uint64, err error) {
	b := c.Budget
	b.Name = strings.TrimSpace(b.Name)
	if err := b.Check(); err != nil {
		return "", 0, err
	}
	set := map[string]json.RawMessage{}
	for field, value := range map[string]any{
		"name": b.Name, "scope": b.Scope, "chat": b.Chat, "user": b.User, "cost": b.Cost, "tokens": b.Tokens, "active": b.Active,
	} {
		set[field], _ = json.Marshal(value) // texts, numbers and a bool
	}
	return h.SaveRecord(ctx, SaveRecord{
		Command: c.Command, Collection: BudgetCollection, Set: set, New: true, Unique: []string{"name"}, Upsert: true,
	})
}

func (h *Handlers) setBudget(ctx context.Context, c SetBudget) (Accepted, error) {
	id, seq, err := h.SetBudget(ctx, c)
	return Accepted{ID: id, Seq: seq}, err
}

func (h *Handlers) listBudgets(ctx context.Context, _ struct{}) (Accepted, error) {
	all, err := h.Budgets(ctx)
	if err != nil {
		return Accepted{}, err
	}
	result, err := json.Marshal(all)
	return Accepted{Result: result}, err
}

// ClearBudget takes the budget of a name away. What waits for it goes on.
type ClearBudget struct {
	Command
	Name string `json:"name"`
}

// ClearBudget carries out the command.
func (h *Handlers) ClearBudget(ctx context.Context, c ClearBudget) (uint64, error) {
	all, err := h.Budgets(ctx)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(b Budget) bool { return b.Name == c.Name })
	if i < 0 {
		return 0, refuse(NotFound, "there is no budget %q", c.Name)
	}
	return h.DeleteRecord(ctx, DeleteRecord{Command: c.Command, Collection: BudgetCollection, Record: all[i].ID})
}
