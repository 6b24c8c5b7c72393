package budget

import (
	"context"
	"fmt"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
)

// Step is a finished step of a turn, which may have reached a limit.
type Step struct {
	Chat  string
	Seq   uint64    // of the event that reports the end
	Time  time.Time // of that event
	Turn  bool      // the turn continues after the step
	Began uint64    // sequence at which the newest step of the turn began; an abort before it has taken effect
}

// Pause stops the turn if its chat has reached a limit, and requests more. There is one request for each time that a
// limit is reached, however many chats reach it and however often Pause is called. Limits set after the step are
// ignored. A limit of a chat counts what the chat and its delegates spend. The request for more is in the chat of the
// person, whichever delegate reaches the limit.
func (h *Budgets) Pause(ctx context.Context, s Step, now time.Time, spent SpendingFunc) error {
	return h.withReachedLimit(ctx, s.Chat, now, spent, func(root string, l limit, last *budgetRequest,
		requests *budgetRequests) error {
		switch {
		case last != nil && !last.isClosed():
			if s.Turn && requests.lastStop(s.Chat) < s.Began {
				return h.stopTurn(ctx, s.Chat, last)
			}
			return nil
		case l.seq > s.Seq, l.day != "" && l.day != dayOf(s.Time):
			return nil
		}
		own, id := root == s.Chat, requests.nextID(l.key())
		if err := h.requestMore(ctx, root, l, id, s.Turn && own); err != nil || own || !s.Turn {
			return err
		}
		return h.stopTurn(ctx, s.Chat, &budgetRequest{id: id, chat: root}) // after a crash the next step does it
	})
}

// MessageHold is the permission request that a message waits for.
type MessageHold struct {
	Permission string
	Reason     string // a sentence for the person
}

// Hold returns the request that a message with sequence seq waits for, nil if the message may be sent. It appends a new
// request if there is none yet, or if the last one was denied before the message was submitted.
func (h *Budgets) Hold(ctx context.Context, chat string, seq uint64, now time.Time,
	spent SpendingFunc) (held *MessageHold, err error) {
	err = h.withReachedLimit(ctx, chat, now, spent, func(root string, l limit, last *budgetRequest,
		requests *budgetRequests) error {
		held = &MessageHold{}
		if last != nil && !last.isClosed() && (last.decided == "" || seq < last.seq) {
			held.Permission, held.Reason = last.id, l.holdReason(last.decided == events.Denied)
			return nil
		}
		held.Permission, held.Reason = requests.nextID(l.key()), l.holdReason(false)
		return h.requestMore(ctx, root, l, held.Permission, false)
	})
	if handlers.CodeOf(err) == handlers.NotFound { // the chat was deleted
		return nil, nil
	}
	return held, err
}

// withReachedLimit calls fn if a limit of the chat is reached, with the root of its tree, that limit and the last
// request for more of it. If several limits are reached, it chooses one with a pending request, else one with a denied
// request, else any. Calls of fn do not overlap.
func (h *Budgets) withReachedLimit(ctx context.Context, chat string, now time.Time, spent SpendingFunc,
	fn func(root string, l limit, last *budgetRequest, requests *budgetRequests) error) error {
	if all, err := h.List(ctx); err != nil || len(all) == 0 {
		return err
	}
	of, err := h.treeOf(ctx, chat)
	if err != nil {
		return err
	}
	return h.withRequests(ctx, func(requests *budgetRequests) error {
		all, err := h.List(ctx) // again under the lock, because a changed budget must not be requested once more
		if err != nil {
			return err
		}
		var over bool
		var counts limit
		var last *budgetRequest
		for _, l := range limitsOf(all, of, now) {
			a, err := h.addApproved(ctx, &l, requests)
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
		return fn(of.root, counts, last, requests)
	})
}

// tree is a chat and its delegates. All of them have the same owner and project.
type tree struct{ root, owner, project string }

// treeOf returns the tree of a chat. Its root is the chat itself unless the chat is a delegate.
func (h *Budgets) treeOf(ctx context.Context, chat string) (of tree, err error) {
	err = h.Permissions.Chat(ctx, chat).Read(ctx, h.Permissions.Log, func(s *permission.State) error {
		if s.Created == 0 && s.Deleted == 0 {
			return fmt.Errorf("look up the budget of chat %s: the replica of the log does not have the chat yet", chat)
		}
		if of = (tree{chat, s.Owner, s.Project}); s.Parent != nil {
			of.root = s.Parent.Root
		}
		return nil
	})
	return of, err
}

// Stopped returns the chats whose turns an approved request for more had stopped, none if it was not approved.
func (h *Budgets) Stopped(ctx context.Context, request string) (chats []string, err error) {
	err = h.withRequests(ctx, func(requests *budgetRequests) error {
		a := requests.byID[request]
		if a == nil {
			return nil
		}
		if err := h.loadOutcome(ctx, a); err != nil || a.decided != events.Authorized {
			return err
		}
		for chat := range a.stopped {
			chats = append(chats, chat)
		}
		return nil
	})
	return chats, err
}

// Release expires the pending requests for more that are obsolete: their day is over, or the budget has changed.
func (h *Budgets) Release(ctx context.Context, now time.Time, spent SpendingFunc) error {
	return h.withRequests(ctx, func(requests *budgetRequests) error {
		all, err := h.List(ctx)
		if err != nil {
			return err
		}
		for _, a := range requests.byID {
			if err := h.loadOutcome(ctx, a); err != nil {
				return err
			}
			if a.ended {
				continue
			}
			if err := h.release(ctx, a, all, requests, now, spent); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *Budgets) release(ctx context.Context, a *budgetRequest, all []Budget, requests *budgetRequests, now time.Time,
	spent SpendingFunc) error {
	of, err := h.treeOf(ctx, a.chat)
	if err != nil {
		return err
	}
	reason := "the budget is not what it was"
	if a.day != "" && a.day != dayOf(now) {
		reason = "the day is over"
	}
	for _, l := range limitsOf(all, of, now) {
		if l.key() != a.key {
			continue
		}
		if _, err := h.addApproved(ctx, &l, requests); err != nil {
			return err
		}
		if err := l.measure(ctx, spent); err != nil || l.reached() {
			return err
		}
		reason = "the limit was raised"
	}
	c := handlers.Command{Actor: events.ActorPolicy}
	_, err = h.Permissions.Chat(ctx, a.chat).ExecuteOne(ctx, h.Permissions.Log, a.chat, c,
		func(s *permission.State) (events.Data, uint64, error) {
			if r := s.Request(a.id); !r.Pending() {
				return nil, r.Outcome.Seq, nil
			}
			return events.PermissionExpired{Permission: a.id, Reason: reason}, 0, nil
		})
	return err
}
