package budget

import (
	"context"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
)

// Step is the end of a model's step, with which a limit may have been reached.
type Step struct {
	Chat  string
	Seq   uint64    // of the event that tells it
	Time  time.Time // of that event
	Turn  bool      // the turn goes on after it
	Began uint64    // sequence with which the newest step of the turn began: what was stopped before that has been stopped
}

// Pause stops the turn when what its chat may spend is spent, and asks a person for more: once for each time that
// a limit is reached, however many chats reach it and however often it is told. Limits set after the step do not count.
func (h *Budgets) Pause(ctx context.Context, s Step, now time.Time, spent SpendingFunc) error {
	return h.overBudget(ctx, s.Chat, now, spent, func(l limit, last *budgetAsk, asks *budgetAsks) error {
		switch {
		case last != nil && !last.isOver():
			if s.Turn && asks.stoppedIn(s.Chat) < s.Began {
				return h.stopFor(ctx, s.Chat, last)
			}
			return nil
		case l.seq > s.Seq, l.day != "" && l.day != dayOf(s.Time):
			return nil
		}
		return h.askForMore(ctx, s.Chat, l, asks.next(l.key()), s.Turn)
	})
}

// MessageHold says that a message waits, and for which ask.
type MessageHold struct {
	Permission string
	Reason     string // a sentence for the person
}

// Hold says whether a message, which stands at seq in the log, has to wait because what its chat may spend is spent;
// nil when it has not. When nobody has been asked for more yet, or more was denied before the message was written, a
// person is asked.
func (h *Budgets) Hold(ctx context.Context, chat string, seq uint64, now time.Time,
	spent SpendingFunc) (held *MessageHold, err error) {
	err = h.overBudget(ctx, chat, now, spent, func(l limit, last *budgetAsk, asks *budgetAsks) error {
		held = &MessageHold{}
		if last != nil && !last.isOver() && (last.decided == "" || seq < last.seq) {
			held.Permission, held.Reason = last.id, l.why(last.decided == events.Denied)
			return nil
		}
		held.Permission, held.Reason = asks.next(l.key()), l.why(false)
		return h.askForMore(ctx, chat, l, held.Permission, false)
	})
	if handlers.CodeOf(err) == handlers.NotFound { // the chat was deleted
		return nil, nil
	}
	return held, err
}

// overBudget calls fn when a limit of the chat is reached, with the one that counts and the last ask for more of it:
// one that waits counts before one that was denied, and that before one nobody was asked about. fn is not called by
// two at once.
func (h *Budgets) overBudget(ctx context.Context, chat string, now time.Time, spent SpendingFunc,
	fn func(limit, *budgetAsk, *budgetAsks) error) error {
	if all, err := h.List(ctx); err != nil || len(all) == 0 {
		return err
	}
	owner, err := h.owner(ctx, chat)
	if err != nil {
		return err
	}
	return h.withBudgetAsks(ctx, func(asks *budgetAsks) error {
		all, err := h.List(ctx) // not those of before: what was taken back because they changed would be asked again
		if err != nil {
			return err
		}
		var over bool
		var counts limit
		var last *budgetAsk
		for _, l := range limits(all, chat, owner, now) {
			a, err := h.allow(ctx, &l, asks)
			if err == nil {
				err = l.measure(ctx, spent)
			}
			if err != nil {
				return err
			}
			if l.reached() && (!over || a.rank() > last.rank()) {
				over, counts, last = true, l, a
			}
		}
		if !over {
			return nil
		}
		return fn(counts, last, asks)
	})
}

func (h *Budgets) owner(ctx context.Context, chat string) (owner string, err error) {
	err = h.Permissions.Chat(ctx, chat).Read(ctx, h.Permissions.Log, func(s *permission.State) error {
		owner = s.Owner
		return nil
	})
	return owner, err
}

// Stopped gives the chats whose turn was stopped until an ask was decided, when more was allowed.
func (h *Budgets) Stopped(ctx context.Context, ask string) (chats []string, err error) {
	err = h.withBudgetAsks(ctx, func(asks *budgetAsks) error {
		a := asks.by[ask]
		if a == nil {
			return nil
		}
		if err := h.settleBudget(ctx, a); err != nil || a.decided != events.Authorized {
			return err
		}
		for chat := range a.stopped {
			chats = append(chats, chat)
		}
		return nil
	})
	return chats, err
}

// Release expires the asks for more that nothing needs any more: the day is over, or the limit is another.
func (h *Budgets) Release(ctx context.Context, now time.Time, spent SpendingFunc) error {
	return h.withBudgetAsks(ctx, func(asks *budgetAsks) error {
		all, err := h.List(ctx)
		if err != nil {
			return err
		}
		for _, a := range asks.by {
			if err := h.settleBudget(ctx, a); err != nil {
				return err
			}
			if a.settled {
				continue
			}
			if err := h.release(ctx, a, all, asks, now, spent); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *Budgets) release(ctx context.Context, a *budgetAsk, all []Budget, asks *budgetAsks, now time.Time,
	spent SpendingFunc) error {
	owner, err := h.owner(ctx, a.chat)
	if err != nil {
		return err
	}
	reason := "the budget is not what it was"
	if a.day != "" && a.day != dayOf(now) {
		reason = "the day is over"
	}
	for _, l := range limits(all, a.chat, owner, now) {
		if l.key() != a.key {
			continue
		}
		if _, err := h.allow(ctx, &l, asks); err != nil {
			return err
		}
		if err := l.measure(ctx, spent); err != nil || l.reached() {
			return err
		}
		reason = "the limit was raised"
	}
	c := handlers.Command{Actor: events.ActorPolicy}
	_, err = h.Permissions.Chat(ctx, a.chat).CarryOutOne(ctx, h.Permissions.Log, a.chat, c,
		func(s *permission.State) (events.Data, uint64, error) {
			if r := s.Request(a.id); !r.Pending() {
				return nil, r.Outcome.Seq, nil
			}
			return events.PermissionExpired{Permission: a.id, Reason: reason}, 0, nil
		})
	return err
}
