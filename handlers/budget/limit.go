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

// Span selects the messages whose spending counts. An empty field selects all chats, accounts, projects or days.
type Span struct{ Chat, User, Project, Day string }

// SpendingFunc returns the cost and tokens of the assistant messages of a span.
type SpendingFunc func(ctx context.Context, of Span) (cost, tokens float64, err error)

// dayOf returns the day of a time for budgets, in UTC.
func dayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// limitsOf returns the limits of a tree, without what was spent.
func limitsOf(all []Budget, of tree, at time.Time) (list []limit) {
	for _, b := range all {
		if !b.Active || b.Chat != "" && b.Chat != of.root || b.User != "" && b.User != of.owner ||
			b.Project != "" && b.Project != of.project {
			continue
		}
		l := limit{Budget: b, chat: of.root}
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
	cost, tokens, err := spent(ctx, Span{Chat: chat, User: l.User, Project: l.Project, Day: l.day})
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
	if l.chat == "" && l.Budget.Chat == "" && l.Project != "" {
		what = strings.TrimSuffix(what, " together have") + " in the project together have"
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
