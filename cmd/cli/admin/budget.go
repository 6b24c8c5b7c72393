package admin

import (
	"context"
	"strconv"
	"time"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	budgets "pocketcoder/handlers/budget"
	"pocketcoder/money"
	"pocketcoder/projections"
)

const budgetUsage = `pocketcoder budget: limits on cost and tokens.

  pocketcoder budget set NAME --scope day --cost 10        all chats together, from midnight to midnight UTC
  pocketcoder budget set NAME --scope chat --tokens 500000 each chat by itself, as long as it exists
  pocketcoder budget list                                  the budgets, and what their chats have spent
  pocketcoder budget clear NAME                            delete a budget; chats that waited for it continue

When a limit is reached, the turn pauses, and a person is asked whether to allow more. Until a person decides, the chats
of the budget send no message.

set creates the budget with this name, or replaces it. --chat limits it to one chat, --user to the chats of one account.
Cost is in US dollars, as OpenCode counts it. Tokens are input, output and reasoning tokens, without cached
tokens. Subagents and delegates count to their chat. OpenCode reports the cost of a step when the step is over, so the last
step can exceed the limit.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

type budgetCommand struct {
	*client.System
	env    cli.Environment
	budget budgets.Budget
	user   string // an email
	asJSON bool
}

func Budget(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "budget", budgetUsage)
	data := cli.DataFlag(fs, env)
	b := budgetCommand{env: env, budget: budgets.Budget{Active: true}}
	fs.StringVar(&b.budget.Scope, "scope", budgets.OfDay, "set: `period`: day or chat")
	fs.StringVar(&b.budget.Chat, "chat", "", "set: the only `chat` that it limits")
	fs.StringVar(&b.user, "user", "", "set: `email` of the account whose chats it limits")
	fs.Float64Var(&b.budget.Cost, "cost", 0, "set: maximum cost, in US dollars; 0 is no limit")
	fs.Float64Var(&b.budget.Tokens, "tokens", 0, "set: maximum number of `tokens`; 0 is no limit")
	fs.BoolVar(&b.asJSON, "json", false, "list: print a JSON list")
	return cli.RunVerb(ctx, env, fs, args, data, map[string]cli.Verb{
		"list": cli.Takes(0, 0, b.list), "set": cli.Takes(1, 1, b.set), "clear": cli.Takes(1, 1, b.clear),
	}, func(s *client.System) { b.System = s })
}

func (b *budgetCommand) set(ctx context.Context, args []string) error {
	if b.user != "" {
		account, err := findAccount(ctx, b.System, b.user)
		if err != nil {
			return err
		}
		b.budget.User = account.ID
	}
	if b.budget.Chat != "" {
		of := map[string]any{"chat": b.budget.Chat} // the budget may be new
		if err := b.QueryNow(ctx, "chat", of, &projections.Chat{}); err != nil {
			return err
		}
	}
	b.budget.Name = args[0]
	return b.Do(ctx, "budget.set", budgets.SetBudget{Command: client.NewCommand(), Budget: b.budget})
}

func (b *budgetCommand) clear(ctx context.Context, args []string) error {
	return b.Do(ctx, "budget.clear", budgets.ClearBudget{Command: client.NewCommand(), Name: args[0]})
}

// budgetStatus is a budget with the amount spent. Spent is nil for a budget that limits each chat by itself.
type budgetStatus struct {
	budgets.Budget
	Spent *projections.Spending `json:"spent,omitempty"`
}

func (b *budgetCommand) list(ctx context.Context, _ []string) error {
	all, err := client.Call[[]budgetStatus](ctx, b.System, "budget.list", struct{}{})
	if err != nil {
		return err
	}
	for i, budget := range all {
		of := map[string]any{"chat": budget.Chat, "user": budget.User}
		if budget.Scope == budgets.OfDay {
			of["day"] = time.Now().UTC().Format(time.DateOnly)
		} else if budget.Chat == "" {
			continue
		}
		all[i].Spent = &projections.Spending{}
		if err := b.Query(ctx, "spent", of, all[i].Spent); err != nil {
			return err
		}
	}
	const empty = "no budgets; make one with: pocketcoder budget set NAME --cost 10"
	return cli.PrintList(b.env, b.asJSON, all, empty, "NAME\tSCOPE\tCHAT\tUSER\tCOST\tTOKENS\tSTATE",
		func(s budgetStatus) []string {
			cost, tokens := "", ""
			if s.Spent != nil {
				cost, tokens = money.Text(s.Spent.Cost)+" of ", count(float64(s.Spent.Tokens))+" of "
			}
			state := map[bool]string{true: "active", false: "paused"}[s.Active]
			return []string{printable.OneLine(s.Name, 40), s.Scope, s.Chat, s.User, formatSpent(cost, s.Cost, money.Text),
				formatSpent(tokens, s.Tokens, count), state}
		})
}

func formatSpent(spent string, limit float64, format func(float64) string) string {
	if limit == 0 {
		return "-"
	}
	return spent + format(limit)
}

func count(tokens float64) string { return strconv.FormatFloat(tokens, 'f', -1, 64) }
