package admin

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	budgets "pocketcoder/handlers/budget"
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
	at := cli.ServerFlags(fs, env)
	b := budgetCommand{env: env, budget: budgets.Budget{}}
	fs.StringVar(&b.budget.Scope, "scope", budgets.OfDay, "set: `period`: day or chat")
	fs.StringVar(&b.budget.Chat, "chat", "", "set: the only `chat` that it limits")
	fs.StringVar(&b.user, "user", "", "set: `email` of the account whose chats it limits")
	fs.Float64Var(&b.budget.Cost, "cost", 0, "set: maximum cost, in US dollars; 0 is no limit")
	fs.Float64Var(&b.budget.Tokens, "tokens", 0, "set: maximum number of `tokens`; 0 is no limit")
	fs.BoolVar(&b.asJSON, "json", false, "list: print a JSON list")
	return cli.RunVerb(ctx, env, fs, args, at, map[string]cli.Verb{
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
		if _, err := b.FindChat(ctx, b.budget.Chat); err != nil {
			return err
		}
	}
	set := b.budget
	_, err := b.Replace(ctx, budgets.Collection, []string{"name"}, map[string]any{"name": strings.TrimSpace(args[0]),
		"scope": set.Scope, "chat": set.Chat, "user": set.User, "cost": set.Cost, "tokens": set.Tokens, "active": true})
	return err
}

func (b *budgetCommand) clear(ctx context.Context, args []string) error {
	all, err := b.all(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.Name == args[0] {
			return b.Delete(ctx, budgets.Collection, one.ID)
		}
	}
	return fmt.Errorf("there is no budget %q", args[0])
}

func (b *budgetCommand) all(ctx context.Context) ([]budgetStatus, error) {
	return client.List[budgetStatus](ctx, b.System, budgets.Collection, client.Select{Sort: "name,id"})
}

// budgetStatus is a budget with the amount spent. Spent is nil for a budget that limits each chat by itself.
type budgetStatus struct {
	budgets.Budget
	Spent *projections.Spending `json:"spent,omitempty"`
}

func (b *budgetCommand) list(ctx context.Context, _ []string) error {
	all, err := b.all(ctx)
	if err != nil {
		return err
	}
	for i, budget := range all {
		of := url.Values{"chat": {budget.Chat}, "user": {budget.User}}
		if budget.Scope == budgets.OfDay {
			of.Set("day", time.Now().UTC().Format(time.DateOnly))
		} else if budget.Chat == "" {
			continue
		}
		all[i].Spent = &projections.Spending{}
		if err := b.Get(ctx, "/api/pocketcoder/spending?"+of.Encode(), all[i].Spent); err != nil {
			return err
		}
	}
	const empty = "no budgets; make one with: pocketcoder budget set NAME --cost 10"
	return cli.PrintList(b.env, b.asJSON, all, empty, "NAME\tSCOPE\tCHAT\tUSER\tCOST\tTOKENS\tSTATE",
		func(s budgetStatus) []string {
			cost, tokens := "", ""
			if s.Spent != nil {
				cost, tokens = budgets.Dollars(s.Spent.Cost)+" of ", count(float64(s.Spent.Tokens))+" of "
			}
			state := map[bool]string{true: "active", false: "paused"}[s.Active]
			return []string{printable.OneLine(s.Name, 40), s.Scope, s.Chat, s.User, formatSpent(cost, s.Cost, budgets.Dollars),
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
