package budget

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"pocketcoder/handlers/record"
)

// The units of a limit.
const (
	unitCost   = "cost"
	unitTokens = "tokens"
)

// limit is what a budget means for one chat now, in one unit.
type limit struct {
	Budget
	unit string
	chat string // whose own it is; empty for one of a day
	day  string // that it is of; empty for one of a chat

	base   float64 // what the budget says
	amount float64 // with what was allowed on top
	spent  float64
}

// key names what is allowed more by a decision: the limit of this chat, or of this day.
func (l limit) key() string { return strings.Join([]string{l.ID, l.unit, l.chat, l.day}, "/") }

// reached leaves room for what adding up amounts gets wrong.
func (l limit) reached() bool { return l.spent >= l.amount-1e-9 }

// more is what is suggested on top: the budget once more, or as many times as it takes to go on.
func (l limit) more() float64 {
	return l.base * max(1, math.Floor((l.spent-l.amount)/l.base)+1)
}

// SpendingFunc tells what assistant messages have cost, and the tokens they took; what is empty does not narrow it.
type SpendingFunc func(ctx context.Context, chat, user, day string) (cost, tokens float64, err error)

// dayOf is the day that budgets count by.
func dayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// limits gives what is limited of a chat, whatever was spent.
func limits(all []Budget, chat, owner string, at time.Time) (list []limit) {
	for _, b := range all {
		if !b.Active || b.Chat != "" && b.Chat != chat || b.User != "" && b.User != owner {
			continue
		}
		l := limit{Budget: b, chat: chat}
		if b.Scope == record.BudgetOfDay {
			l.chat, l.day = "", dayOf(at)
		}
		for _, of := range []struct {
			unit string
			base float64
		}{{unitCost, b.Cost}, {unitTokens, b.Tokens}} {
			if l.unit, l.base, l.amount = of.unit, of.base, of.base; of.base > 0 {
				list = append(list, l)
			}
		}
	}
	return list
}

func (l *limit) measure(ctx context.Context, spent SpendingFunc) error {
	chat := l.Budget.Chat
	if l.chat != "" {
		chat = l.chat
	}
	cost, tokens, err := spent(ctx, chat, l.User, l.day)
	if l.spent = cost; l.unit == unitTokens {
		l.spent = tokens
	}
	return err
}

// why says why a message waits, in words that stay the same while it does.
func (l limit) why(denied bool) string {
	switch {
	case !denied && l.shared():
		return fmt.Sprintf("The budget “%s” is used up: it waits until an administrator decides about more.", l.Name)
	case !denied:
		return fmt.Sprintf("The budget “%s” is used up: it waits for a decision about more.", l.Name)
	case l.day != "":
		return fmt.Sprintf("The budget “%s” is used up and more was denied: it waits until the limit is raised or the day (UTC) is over.", l.Name)
	}
	return fmt.Sprintf("The budget “%s” is used up and more was denied: it waits until the limit is raised.", l.Name)
}

// question is the ask as a person reads it.
func (l limit) question() string {
	amount := func(v float64) string { return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64) }
	what := "All chats together have"
	switch {
	case l.chat != "" || l.Budget.Chat != "":
		what = "This chat has"
	case l.User != "":
		what = "All chats of its owner together have"
	}
	if l.unit == unitCost {
		what += " cost " + amount(l.spent)
	} else {
		what += " used " + amount(l.spent) + " tokens"
	}
	if l.day != "" {
		what += " on " + l.day + " (UTC)"
	}
	question := fmt.Sprintf("%s; the budget “%s” allows %s. Allow %s more?", what, l.Name, amount(l.amount),
		amount(l.more()))
	if l.shared() {
		question += " Only an administrator decides."
	}
	return question
}
