package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"pocketcoder/handlers"
	"pocketcoder/projections"
)

const budgetUsage = `pocketcoder budget: limits on what may be spent, of the running system. When one is reached the turn pauses, and a
person is asked whether more is allowed; until then nothing more is sent in the chats it is about.

  pocketcoder budget set NAME --scope day --cost 10        all chats together, from midnight to midnight UTC
  pocketcoder budget set NAME --scope chat --tokens 500000 each chat by itself, for as long as there is one
  pocketcoder budget list                                  the budgets, and what was spent
  pocketcoder budget clear NAME                            a budget is gone; what waited for it goes on

set makes the budget of a name, or makes it what is given now. --chat narrows it to one chat, --user to the chats of one
account. Cost is in the provider's currency, as OpenCode counts it; tokens are input, output and reasoning, not what was
read from a cache or written to it. Subagents count to their chat. OpenCode tells what a step cost when the step is over:
so much may be spent beyond the limit.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

type budgetCommand struct {
	*system
	env    environment
	set    handlers.Budget
	user   string // an email
	asJSON bool
}

// budgetVerbs are the subcommands of budget, and how many arguments they take.
var budgetVerbs = map[string]struct {
	args int
	run  func(*budgetCommand, context.Context, []string) error
}{
	"list":  {0, (*budgetCommand).list},
	"set":   {1, (*budgetCommand).make},
	"clear": {1, (*budgetCommand).clear},
}

func runBudget(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "budget", budgetUsage)
	data := dataFlag(fs, env)
	b := budgetCommand{env: env, set: handlers.Budget{Active: true}}
	fs.StringVar(&b.set.Scope, "scope", handlers.BudgetOfDay, "set: `period`: day or chat")
	fs.StringVar(&b.set.Chat, "chat", "", "set: the only `chat` it is about")
	fs.StringVar(&b.user, "user", "", "set: `email` of the account whose chats it is about")
	fs.Float64Var(&b.set.Cost, "cost", 0, "set: the most it may cost; 0 is no limit")
	fs.Float64Var(&b.set.Tokens, "tokens", 0, "set: the most `tokens` it may take; 0 is no limit")
	fs.BoolVar(&b.asJSON, "json", false, "list: print a JSON list")
	rest, err := parse(fs, args, 2)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		fs.Usage()
		return errUsage
	}
	verb, ok := budgetVerbs[rest[0]]
	if !ok {
		return wrongUsage(env, "budget: there is no %q; see pocketcoder budget -h", rest[0])
	}
	if len(rest)-1 != verb.args {
		return wrongUsage(env, "budget %s: wrong number of arguments; see pocketcoder budget -h", rest[0])
	}
	if b.system, err = connect(ctx, dataDir(*data)); err != nil {
		return err
	}
	defer b.close()
	err = verb.run(&b, ctx, rest[1:])
	if r := (handlers.Refused{}); errors.As(err, &r) && r.Code == handlers.Invalid {
		return wrongUsage(env, "budget: %s", r.Text)
	}
	return err
}

func (b *budgetCommand) make(ctx context.Context, args []string) error {
	if b.user != "" {
		account, err := (&userCommand{system: b.system, env: b.env}).find(ctx, b.user)
		if err != nil {
			return err
		}
		b.set.User = account.ID
	}
	if b.set.Chat != "" {
		if err := b.query(ctx, "chat", map[string]any{"chat": b.set.Chat}, &projections.Chat{}); err != nil {
			return err
		}
	}
	b.set.Name = args[0]
	_, err := handlers.Give(ctx, b.nc, "budget.set", handlers.SetBudget{Command: newCommand(), Budget: b.set})
	return err
}

func (b *budgetCommand) clear(ctx context.Context, args []string) error {
	_, err := handlers.Give(ctx, b.nc, "budget.clear", handlers.ClearBudget{Command: newCommand(), Name: args[0]})
	return err
}

// shownBudget is a budget with what was spent of it; of one that is each chat's by itself that is nothing to tell here.
type shownBudget struct {
	handlers.Budget
	Spent *projections.Spending `json:"spent,omitempty"`
}

func (b *budgetCommand) list(ctx context.Context, _ []string) error {
	a, err := handlers.Give(ctx, b.nc, "budget.list", struct{}{})
	if err != nil {
		return err
	}
	all := []shownBudget{}
	if err := json.Unmarshal(a.Result, &all); err != nil {
		return fmt.Errorf("read the budgets: %w", err)
	}
	for i, budget := range all {
		of := map[string]any{"chat": budget.Chat, "user": budget.User}
		if budget.Scope == handlers.BudgetOfDay {
			of["day"] = time.Now().UTC().Format(time.DateOnly)
		} else if budget.Chat == "" {
			continue
		}
		all[i].Spent = &projections.Spending{}
		if err := b.query(ctx, "spent", of, all[i].Spent); err != nil {
			return err
		}
	}
	if b.asJSON {
		return printJSON(b.env.stdout, all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(b.env.stdout, "no budgets; make one with: pocketcoder budget set NAME --cost 10")
		return err
	}
	t := tabwriter.NewWriter(b.env.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSCOPE\tCHAT\tUSER\tCOST\tTOKENS\tSTATE")
	for _, s := range all {
		cost, tokens := "", ""
		if s.Spent != nil {
			cost, tokens = amount(s.Spent.Cost)+" of ", amount(float64(s.Spent.Tokens))+" of "
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(s.Name, 40), s.Scope, s.Chat, s.User, limited(cost, s.Cost), limited(tokens, s.Tokens),
			map[bool]string{true: "active", false: "paused"}[s.Active])
	}
	return t.Flush()
}

// limited shows a limit with what was spent of it.
func limited(spent string, limit float64) string {
	if limit == 0 {
		return "-"
	}
	return spent + amount(limit)
}

// amount shows a number with at most four decimals.
func amount(v float64) string {
	text := strconv.FormatFloat(v, 'f', 4, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
