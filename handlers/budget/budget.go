// Package budget limits what chats spend. It stores budgets, stops a turn when a limit is reached, and requests a
// permission for more.
//
// Promises: a person is asked once for each time that a limit is reached, however many chats reach it. Only
// administrators decide about a budget that is not of one chat alone. What was allowed on top counts until it is
// spent. A request expires when the day is over or the budget changes.
//
// It must not know how spending is added up: callers pass a function.
package budget

import (
	"context"
	"encoding/json"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"slices"
	"strings"
)

// Budgets carries out the commands on budgets, and asks for more when what may be spent is spent. The zero value but
// for its parts is ready. It is safe for concurrent use.
type Budgets struct {
	Records     *record.Records
	Permissions *permission.Permissions

	asks handlers.Folds[*budgetAsks] // one
}

// Commands are the commands on budgets that can be given over NATS.
func (h *Budgets) Commands() handlers.Commands {
	return handlers.Commands{
		"budget.list":  handlers.QueryOf(func(ctx context.Context, _ struct{}) ([]Budget, error) { return h.List(ctx) }),
		"budget.set":   handlers.CommandOf(func(c *SetBudget, actor string) { c.Actor = actor }, handlers.Created(h.Set)),
		"budget.clear": handlers.CommandOf(func(c *ClearBudget, actor string) { c.Actor = actor }, handlers.SeqOnly(h.Clear)),
	}
}

// Budget is a limit on what may be spent, a record of BudgetCollection. What subagents spend counts to their chat.
type Budget struct {
	ID    string `json:"id,omitempty"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
	// that it is about; empty for each chat by itself, of scope day for all together
	Chat   string  `json:"chat,omitempty"`
	User   string  `json:"user,omitempty"`   // whose chats it is about; empty for everybody's
	Cost   float64 `json:"cost,omitempty"`   // in the provider's currency, 0 is no limit
	Tokens float64 `json:"tokens,omitempty"` // input, output and reasoning, 0 is no limit
	Active bool    `json:"active"`

	seq uint64 // of the event that made it so
}

// shared reports whether the budget is not of one chat alone, or limits an account. Only administrators allow more of
// it: the owner of the chat that reaches it would decide what others may spend, or about a limit on the owner.
func (b Budget) shared() bool { return b.User != "" || b.Scope == record.BudgetOfDay && b.Chat == "" }

// Check refuses a budget that limits nothing, or cannot be read.
func (b Budget) Check() error { return record.CheckBudget(b.Name, b.Scope, b.Cost, b.Tokens) }

// List lists the budgets, by name. One that is not valid is left out: it was refused when it was made, so somebody
// wrote past this package.
func (h *Budgets) List(ctx context.Context) ([]Budget, error) {
	all, err := record.All[Budget](ctx, h.Records, record.BudgetCollection)
	if err != nil {
		return nil, err
	}
	list := []Budget{}
	for _, stored := range all {
		if b := stored.Value; b.Check() == nil {
			b.ID, b.seq = stored.ID, stored.Seq
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b Budget) int { return strings.Compare(a.Name+"\x00"+a.ID, b.Name+"\x00"+b.ID) })
	return list, nil
}

// SetBudget makes the budget of a name, or makes it what is given.
type SetBudget struct {
	handlers.Command
	Budget Budget `json:"budget"`
}

func (h *Budgets) Set(ctx context.Context, c SetBudget) (id string, seq uint64, err error) {
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
	return h.Records.Save(ctx, record.Save{
		Command: c.Command, Collection: record.BudgetCollection, Set: set, New: true, Upsert: true,
	})
}

// ClearBudget takes the budget of a name away. What waits for it goes on.
type ClearBudget struct {
	handlers.Command
	Name string `json:"name"`
}

func (h *Budgets) Clear(ctx context.Context, c ClearBudget) (uint64, error) {
	all, err := h.List(ctx)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(b Budget) bool { return b.Name == c.Name })
	if i < 0 {
		return 0, handlers.Refuse(handlers.NotFound, "there is no budget %q", c.Name)
	}
	return h.Records.Delete(ctx, record.Delete{Command: c.Command, Collection: record.BudgetCollection, Record: all[i].ID})
}
