package budget

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The units of a limit.
const (
	unitCost   = "cost"
	unitTokens = "tokens"
)

// limit is a budget applied to one chat, in one unit.
type limit struct {
	Budget
	unit string
	chat string // of a limit with scope chat
	day  string // of a limit with scope day

	base   float64 // without the approved amounts
	amount float64 // with the approved amounts
	spent  float64
}

// key identifies the limit of one chat or of one day. An approval of more raises the limit with this key.
func (l limit) key() string { return strings.Join([]string{l.ID, l.unit, l.chat, l.day}, "/") }

// reached reports whether the limit is reached. It tolerates the rounding errors of a sum.
func (l limit) reached() bool { return l.spent >= l.amount-1e-9 }

// more returns the amount to request: the smallest multiple of the budget that allows the chat to continue.
func (l limit) more() float64 {
	return l.base * max(1, math.Floor((l.spent-l.amount)/l.base)+1)
}

// SpendingFunc returns the cost and tokens of assistant messages. An empty argument selects all chats, accounts or
// days.
type SpendingFunc func(ctx context.Context, chat, user, day string) (cost, tokens float64, err error)

// dayOf returns the day of a time for budgets, in UTC.
func dayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// limitsOf returns the limits of a chat, without what was spent.
func limitsOf(all []Budget, chat, owner string, at time.Time) (list []limit) {
	for _, b := range all {
		if !b.Active || b.Chat != "" && b.Chat != chat || b.User != "" && b.User != owner {
			continue
		}
		l := limit{Budget: b, chat: chat}
		if b.Scope == OfDay {
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

// holdReason returns a sentence about why a message waits. It is the same for as long as the request is.
func (l limit) holdReason(denied bool) string {
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

// question returns the text of the permission request.
func (l limit) question() string {
	amount := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	if l.unit == unitCost {
		amount = Dollars
	}
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
