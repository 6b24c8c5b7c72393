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
)

// budgetRequests holds every request for more, and the turns that each has stopped.
type budgetRequests struct {
	byID  map[string]*budgetRequest
	byKey map[string][]*budgetRequest // by the limit's key, in order
	taken map[string]bool             // ids of other requests
}

type budgetRequest struct {
	id, chat, key, day string
	more               float64
	stopped            map[string]uint64 // sequences of the aborts that it caused, by chat

	ended   bool
	decided events.Decision // empty while it is pending, and after it expired
	seq     uint64          // of the event that ended it
}

// budgetMetadata is the metadata of a permission request for more.
type budgetMetadata struct {
	Budget string  `json:"budget"` // the record
	Name   string  `json:"name"`
	Scope  string  `json:"scope"`
	Period string  `json:"period"` // the day, 2006-01-02 in UTC; empty of scope chat
	Unit   string  `json:"unit"`   // cost or tokens
	Limit  float64 `json:"limit"`  // with the amounts that were approved before
	Spent  float64 `json:"spent"`
	More   float64 `json:"more"` // the amount that an approval adds

	Administrators bool `json:"administrators,omitempty"` // only administrators decide; see permission.ForAdministrators
}

func (s *budgetRequests) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.PermissionRequested:
		var m budgetMetadata
		if e.Actor != events.ActorPolicy || d.Type != events.KindBudget || json.Unmarshal(d.Metadata, &m) != nil ||
			s.byID[d.Permission] != nil {
			s.taken[d.Permission] = true
			return
		}
		l := limit{Budget: Budget{ID: m.Budget}, unit: m.Unit, day: m.Period}
		if m.Scope == OfChat {
			l.chat = e.Subject.ID
		}
		a := &budgetRequest{id: d.Permission, chat: e.Subject.ID, key: l.key(), day: m.Period, more: m.More,
			stopped: map[string]uint64{}}
		s.byID[a.id], s.byKey[a.key] = a, append(s.byKey[a.key], a)
	case events.AbortRequested:
		if a := s.byID[e.Cause]; a != nil && e.Actor == events.ActorPolicy {
			a.stopped[e.Subject.ID] = e.Seq
		}
	}
}

// rank orders the requests that may hold a chat: a pending one before a denied one, a denied one before none.
func (a *budgetRequest) rank() int {
	switch {
	case a == nil || a.isClosed():
		return 0
	case a.decided != "":
		return 1
	}
	return 2
}

// isClosed reports whether a request is neither pending nor denied: it was approved or has expired.
func (a *budgetRequest) isClosed() bool { return a.ended && a.decided != events.Denied }

// withRequests calls fn with the current requests for more. Calls of fn do not overlap.
func (h *Budgets) withRequests(ctx context.Context, fn func(*budgetRequests) error) error {
	f := h.requests.Get(ctx, "", func() *handlers.Fold[*budgetRequests] {
		return handlers.NewFold(&budgetRequests{map[string]*budgetRequest{}, map[string][]*budgetRequest{}, map[string]bool{}},
			events.ChatSubject("*", events.PermissionRequested{}.Kind()),
			events.ChatSubject("*", events.AbortRequested{}.Kind()))
	})
	return f.Read(ctx, h.Permissions.Log, fn)
}

// addApproved adds the approved amounts to a limit. It returns the last request for more of this limit, nil if there is
// none.
func (h *Budgets) addApproved(ctx context.Context, l *limit,
	requests *budgetRequests) (last *budgetRequest, err error) {
	for _, a := range requests.byKey[l.key()] {
		if err := h.loadOutcome(ctx, a); err != nil {
			return nil, err
		}
		if a.decided == events.Authorized {
			l.amount += a.more
		}
		last = a
	}
	return last, nil
}

// loadOutcome reads whether a request has ended, and how. The deletion of its chat ends a request.
func (h *Budgets) loadOutcome(ctx context.Context, a *budgetRequest) error {
	if a.ended {
		return nil
	}
	return h.Permissions.Chat(ctx, a.chat).Read(ctx, h.Permissions.Log, func(s *permission.State) error {
		outcome := s.Request(a.id).Outcome
		if a.ended, a.seq = outcome.Seq != 0 || s.Deleted != 0, max(outcome.Seq, s.Deleted); outcome.Decided != nil {
			a.decided, a.seq = outcome.Decided.Decision, outcome.Seq
		}
		return nil
	})
}

// nextID returns the id of the next request for more of a limit. The id is derived from the number of earlier requests,
// so concurrent callers, and a retry after a crash, append one request.
func (s *budgetRequests) nextID(key string) string {
	for n := len(s.byKey[key]); ; n++ {
		sum := sha256.Sum256([]byte("budget/" + key + "/" + strconv.Itoa(n)))
		if id := hex.EncodeToString(sum[:])[:15]; !s.taken[id] {
			return id
		}
	}
}

// lastStop returns the sequence of the last abort of the chat that a budget caused, 0 if there is none.
func (s *budgetRequests) lastStop(chat string) (seq uint64) {
	for _, a := range s.byID {
		seq = max(seq, a.stopped[chat])
	}
	return seq
}

// requestMore appends a request for more. If stop is set, it stops the turn in the same append.
func (h *Budgets) requestMore(ctx context.Context, chat string, l limit, id string, stop bool) error {
	metadata, err := json.Marshal(budgetMetadata{
		Budget: l.ID, Name: l.Name, Scope: l.Scope, Period: l.day, Unit: l.unit, Limit: l.amount, Spent: l.spent, More: l.more(),
		Administrators: l.shared(),
	})
	if err != nil {
		return err
	}
	request := events.PermissionRequested{Permission: id, Type: events.KindBudget, Patterns: []string{l.Name},
		Metadata: metadata, Message: l.question()}
	c := handlers.Command{ID: id, Actor: events.ActorPolicy}
	_, err = h.Permissions.Chat(ctx, chat).Execute(ctx, h.Permissions.Log, c,
		func(s *permission.State) ([]events.Event, uint64, error) {
			if err := s.Missing(chat); err != nil || s.Request(id).Seq != 0 {
				return nil, 0, err
			}
			requested, err := events.New(chat, events.ActorPolicy, request)
			if err != nil || !stop {
				return []events.Event{requested}, 0, err
			}
			stopped, err := events.New(chat, events.ActorPolicy, events.AbortRequested{})
			return []events.Event{requested, stopped}, 0, err
		})
	return err
}

// stopTurn stops the turn of a chat because of a pending or denied request, unless the request was approved meanwhile.
func (h *Budgets) stopTurn(ctx context.Context, chat string, a *budgetRequest) error {
	c := handlers.Command{ID: a.id, Actor: events.ActorPolicy}
	_, err := h.Permissions.Chat(ctx, a.chat).Execute(ctx, h.Permissions.Log, c,
		func(s *permission.State) ([]events.Event, uint64, error) {
			if outcome := s.Request(a.id).Outcome; outcome.Seq != 0 && outcome.Status != events.Denied {
				return nil, outcome.Seq, nil
			}
			e, err := events.New(chat, events.ActorPolicy, events.AbortRequested{})
			return []events.Event{e}, 0, err
		})
	return err
}
