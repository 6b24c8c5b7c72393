package budget

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
)

// budgetAsks is every ask for more, and what it has stopped.
type budgetAsks struct {
	by    map[string]*budgetAsk
	of    map[string][]*budgetAsk // by the limit's key, in order
	taken map[string]bool         // ids of other asks over the API
}

type budgetAsk struct {
	id, chat, key, day string
	more               float64
	stopped            map[string]uint64 // chats whose turn was stopped, and where that stands

	settled bool
	decided events.Decision // empty while it waits, and when it expired
	seq     uint64          // of its end
}

// budgetMetadata is what an ask for more says to clients.
type budgetMetadata struct {
	Budget string  `json:"budget"` // the record
	Name   string  `json:"name"`
	Scope  string  `json:"scope"`
	Period string  `json:"period"` // the day, 2006-01-02 in UTC; empty of scope chat
	Unit   string  `json:"unit"`   // cost or tokens
	Limit  float64 `json:"limit"`  // with what was allowed before
	Spent  float64 `json:"spent"`
	More   float64 `json:"more"` // what an approval allows on top

	Administrators bool `json:"administrators,omitempty"` // only they decide: see permission.ForAdministrators
}

func (s *budgetAsks) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.PermissionRequested:
		var m budgetMetadata
		if e.Actor != events.ActorPolicy || d.Type != permission.TypeBudget || json.Unmarshal(d.Metadata, &m) != nil ||
			s.by[d.Permission] != nil {
			s.taken[d.Permission] = true
			return
		}
		l := limit{Budget: Budget{ID: m.Budget}, unit: m.Unit, day: m.Period}
		if m.Scope == record.BudgetOfChat {
			l.chat = e.Subject.ID
		}
		a := &budgetAsk{id: d.Permission, chat: e.Subject.ID, key: l.key(), day: m.Period, more: m.More,
			stopped: map[string]uint64{}}
		s.by[a.id], s.of[a.key] = a, append(s.of[a.key], a)
	case events.AbortRequested:
		if a := s.by[e.Cause]; a != nil && e.Actor == events.ActorPolicy {
			a.stopped[e.Subject.ID] = e.Seq
		}
	}
}

// rank orders what may hold a chat.
func (a *budgetAsk) rank() int {
	switch {
	case a == nil || a.isOver():
		return 0
	case a.decided != "":
		return 1
	}
	return 2
}

// isOver says that an ask neither waits nor was denied: it expired, or what it allowed is spent.
func (a *budgetAsk) isOver() bool { return a.settled && a.decided != events.Denied }

// withBudgetAsks calls fn with the asks for more as they are now, and nobody else meanwhile.
func (h *Budgets) withBudgetAsks(ctx context.Context, fn func(*budgetAsks) error) error {
	f := h.asks.Get(ctx, "", func() *handlers.Fold[*budgetAsks] {
		return handlers.NewFold(&budgetAsks{map[string]*budgetAsk{}, map[string][]*budgetAsk{}, map[string]bool{}},
			events.ChatSubject("*", events.PermissionRequested{}.Kind()),
			events.ChatSubject("*", events.AbortRequested{}.Kind()))
	})
	return f.Read(ctx, h.Permissions.Log, fn)
}

// allow adds to a limit what was allowed, and gives the last ask for more of it.
func (h *Budgets) allow(ctx context.Context, l *limit, asks *budgetAsks) (last *budgetAsk, err error) {
	for _, a := range asks.of[l.key()] {
		if err := h.settleBudget(ctx, a); err != nil {
			return nil, err
		}
		if a.decided == events.Authorized {
			l.amount += a.more
		}
		last = a
	}
	return last, nil
}

// settleBudget finds out what has become of an ask. One in a chat that was deleted nobody decides any more.
func (h *Budgets) settleBudget(ctx context.Context, a *budgetAsk) error {
	if a.settled {
		return nil
	}
	return h.Permissions.Chat(ctx, a.chat).Read(ctx, h.Permissions.Log, func(s *permission.State) error {
		outcome := s.Request(a.id).Outcome
		if a.settled, a.seq = outcome.Seq != 0 || s.Deleted != 0, max(outcome.Seq, s.Deleted); outcome.Decided != nil {
			a.decided, a.seq = outcome.Decided.Decision, outcome.Seq
		}
		return nil
	})
}

// next gives the id of the next ask for more of a limit. It follows from what was asked before, so that whoever asks
// at the same moment, or again after a crash, asks the same.
func (s *budgetAsks) next(key string) string {
	for n := len(s.of[key]); ; n++ {
		sum := sha256.Sum256([]byte("budget/" + key + "/" + strconv.Itoa(n)))
		if id := hex.EncodeToString(sum[:])[:15]; !s.taken[id] {
			return id
		}
	}
}

// stoppedIn is where the chat's turn was last stopped for a budget.
func (s *budgetAsks) stoppedIn(chat string) (seq uint64) {
	for _, a := range s.by {
		seq = max(seq, a.stopped[chat])
	}
	return seq
}

// askForMore asks, and stops the turn with it or not at all.
func (h *Budgets) askForMore(ctx context.Context, chat string, l limit, id string, stop bool) error {
	metadata, err := json.Marshal(budgetMetadata{
		Budget: l.ID, Name: l.Name, Scope: l.Scope, Period: l.day, Unit: l.unit, Limit: l.amount, Spent: l.spent, More: l.more(),
		Administrators: l.shared(),
	})
	if err != nil {
		return err
	}
	request := events.PermissionRequested{Permission: id, Type: permission.TypeBudget, Patterns: []string{l.Name},
		Metadata: metadata, Message: l.question()}
	c := handlers.Command{ID: id, Actor: events.ActorPolicy}
	_, err = h.Permissions.Chat(ctx, chat).CarryOut(ctx, h.Permissions.Log, c,
		func(s *permission.State) ([]events.Event, uint64, error) {
			if err := s.Missing(chat); err != nil || s.Request(id).Seq != 0 {
				return nil, 0, err
			}
			asked, err := events.New(chat, events.ActorPolicy, request)
			if err != nil || !stop {
				return []events.Event{asked}, 0, err
			}
			stopped, err := events.New(chat, events.ActorPolicy, events.AbortRequested{})
			return []events.Event{asked, stopped}, 0, err
		})
	return err
}

// stopFor stops the turn of a chat because of an ask that waits or was denied, unless it was allowed meanwhile.
func (h *Budgets) stopFor(ctx context.Context, chat string, a *budgetAsk) error {
	c := handlers.Command{ID: a.id, Actor: events.ActorPolicy}
	_, err := h.Permissions.Chat(ctx, a.chat).CarryOut(ctx, h.Permissions.Log, c,
		func(s *permission.State) ([]events.Event, uint64, error) {
			if outcome := s.Request(a.id).Outcome; outcome.Seq != 0 && outcome.Status != string(events.Denied) {
				return nil, outcome.Seq, nil
			}
			e, err := events.New(chat, events.ActorPolicy, events.AbortRequested{})
			return []events.Event{e}, 0, err
		})
	return err
}
