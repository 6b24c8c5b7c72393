// Package budget limits what chats spend. It stores budgets, stops a turn when a limit is reached, and requests a
// permission for more.
//
// Promises: there is one request for each time that a limit is reached, however many chats reach it. Only
// administrators decide about a budget that is not of one chat alone. An approved amount raises the limit until it is
// spent. A request expires when the day is over or the budget changes.
//
// It must not know how spending is added up: callers pass a function.
package budget

import (
	"context"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"slices"
	"strings"
)

// Budgets carries out the commands on budgets, and requests more when a limit is reached. Only the exported fields must
// be set. It is safe for concurrent use.
type Budgets struct {
	Records     *record.Records
	Permissions *permission.Permissions

	requests handlers.Folds[*budgetRequests] // one fold, with the key ""
}

// Budget is a limit on spending, a record of Collection. The spending of subagents counts for their chat.
type Budget struct {
	ID    string `json:"id,omitempty"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
	// the only chat that it limits; empty for each chat by itself, with scope day for all chats together
	Chat    string  `json:"chat,omitempty"`
	User    string  `json:"user,omitempty"`    // the only account whose chats it limits; empty for all accounts
	Project string  `json:"project,omitempty"` // the only project whose chats it limits; empty for all projects
	Cost    float64 `json:"cost,omitempty"`    // in US dollars, 0 is no limit
	Tokens  float64 `json:"tokens,omitempty"`  // input, output and reasoning, 0 is no limit
	Active  bool    `json:"active"`

	seq uint64 // of the last event of the record
}

// shared reports whether the budget limits several chats together, or an account. Only administrators approve more of a
// shared budget. Otherwise the owner of one chat would decide about the spending of others, or about a limit on the
// owner.
func (b Budget) shared() bool { return b.User != "" || b.Scope == OfDay && b.Chat == "" }

// List returns the budgets, sorted by name. It skips invalid ones, which only an event from outside this package can
// contain.
func (h *Budgets) List(ctx context.Context) ([]Budget, error) {
	all, err := record.All[Budget](ctx, h.Records, Collection)
	if err != nil {
		return nil, err
	}
	list := []Budget{}
	for _, stored := range all {
		if b := stored.Value; b.check() == nil {
			b.ID, b.seq = stored.ID, stored.Seq
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b Budget) int { return strings.Compare(a.Name+"\x00"+a.ID, b.Name+"\x00"+b.ID) })
	return list, nil
}
