package admin

import (
	"context"
	"flag"
	"net/url"
	"strconv"
	"time"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	budgets "pocketcoder/handlers/budget"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
)

const budgetUsage = `
  pocketcoder budget set daily --scope day --cost 10          all chats together, from midnight to midnight UTC
  pocketcoder budget set "a chat" --scope chat --tokens 500000  each chat by itself, as long as it exists

When a limit is reached, the turn pauses, and a person is asked whether to allow more. Until a person decides, the chats
of the budget send no message. list shows what the chats have spent. When a budget is deleted, chats that waited for it
continue.

--chat limits one chat, --user the chats of one account. Cost is in US dollars, as OpenCode counts it. Tokens are input,
output and reasoning tokens, without cached tokens; 0 is no limit. Subagents and delegates count to their chat. OpenCode
reports the cost of a step when the step is over, so the last step can exceed the limit.
`

// Budget is the command budget.
var Budget = cli.Group{Name: "budget", Usage: budgetUsage, Former: map[string]string{"clear": "delete"},
	Own: func(r *cli.Records, _ *flag.FlagSet) map[string]cli.Verb {
		return map[string]cli.Verb{"list": cli.Takes(0, 0, func(ctx context.Context, _ []string) error {
			return listBudgets(ctx, r)
		})}
	}}

type budgetStatus struct {
	budgets.Budget
	Spent *projections.Spending `json:"spent,omitempty"`
}

func listBudgets(ctx context.Context, r *cli.Records) error {
	all, err := client.List[budgetStatus](ctx, r.System, budgets.Collection, client.Select{Sort: "name,id"})
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
		if err := r.Get(ctx, "/api/pocketcoder/spending?"+of.Encode(), all[i].Spent); err != nil {
			return err
		}
	}
	const empty = "no budgets; make one with: pocketcoder budget set NAME --cost 10"
	return cli.PrintList(r.Env, r.AsJSON, all, empty, "NAME\tSCOPE\tCHAT\tUSER\tCOST\tTOKENS\tSTATE",
		func(s budgetStatus) []string {
			cost, tokens := "", ""
			if s.Spent != nil {
				cost, tokens = budgets.Dollars(s.Spent.Cost)+" of ", count(float64(s.Spent.Tokens))+" of "
			}
			state := map[bool]string{true: "active", false: "paused"}[s.Active]
			return []string{display.OneLine(s.Name, 40), s.Scope, s.Chat, s.User, formatSpent(cost, s.Cost, budgets.Dollars),
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
