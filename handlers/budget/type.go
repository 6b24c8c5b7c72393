package budget

import (
	"math"
	"strings"

	"pocketcoder/handlers/record"
)

// Collection is the config collection of the limits on spending.
const Collection = "budgets"

// Type is the type of the records of budgets.
var Type = record.Type{Name: Collection, Command: "budget", Title: "Budgets",
	About:  "limits on the cost of a chat or of a day",
	Access: record.Rules(own, own, record.Admins, record.Admins, record.Admins), AllUsers: true,
	Unique: []string{"name"}, Defaults: map[string]any{"scope": OfDay}, Complete: complete,
	Fields: []record.Field{
		{Name: "name", Kind: record.Text, Label: "Name", Required: true},
		{Name: "scope", Kind: record.Select, Label: "Applies to a", Values: []string{OfChat, OfDay}, Required: true},
		{Name: "chat", Kind: record.Relation, Label: "Chat", Relation: "chats"},
		{Name: "user", Kind: record.Relation, Label: "Account, for a day", Relation: "users"},
		{Name: "project", Kind: record.Relation, Label: "Project", Relation: "projects",
			Choices: map[string]string{"": "all projects"}},
		{Name: "cost", Kind: record.Number, Label: "Most cost", Unit: record.Dollars},
		{Name: "tokens", Kind: record.Number, Label: "Most tokens"},
		{Name: "active", Kind: record.Bool, Label: "In force", Switch: true},
	}}

// own admits accounts to the budgets that may limit them.
var own = record.Rule(record.IsStaff + ` || (@request.auth.id != "" && (user = "" || user = @request.auth.id) && ` +
	`(chat = "" || ` + record.SeesChat("chat.") + `) && (project = "" || ` + record.SeesProject + `))`)

func complete(c record.Change) error {
	now := c.Now()
	return Budget{Name: now.Text("name"), Scope: now.Text("scope"), Cost: now.Number("cost"),
		Tokens: now.Number("tokens")}.check()
}

// The scopes of a budget.
const (
	OfChat = "chat" // all that a chat spends
	OfDay  = "day"  // spending from midnight to midnight UTC
)

// maxAmount keeps amounts in the range in which a float64 represents every integer.
const maxAmount = 1 << 50

// minAmount keeps the ratio of spending to a limit in a sensible range.
const minAmount = 1e-6

// check refuses a budget that limits nothing, or is not valid.
func (b Budget) check() error {
	amount := func(field string, v float64) error {
		if math.IsNaN(v) || v < 0 || v > maxAmount || v > 0 && v < minAmount {
			return record.Invalid(field, "%s: want 0 (no limit), or a number from %v to %d", field, minAmount, int64(maxAmount))
		}
		return nil
	}
	switch {
	case strings.TrimSpace(b.Name) == "":
		return record.Invalid("name", "name: a budget needs one")
	case b.Scope != OfChat && b.Scope != OfDay:
		return record.Invalid("scope", "scope: want %q or %q, got %q", OfChat, OfDay, b.Scope)
	case b.Tokens != math.Trunc(b.Tokens):
		return record.Invalid("tokens", "tokens: want a whole number")
	case b.Cost == 0 && b.Tokens == 0:
		return record.Invalid("cost", "cost, tokens: a budget needs one of them above 0")
	}
	if err := amount("cost", b.Cost); err != nil {
		return err
	}
	return amount("tokens", b.Tokens)
}
