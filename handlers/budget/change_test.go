package budget

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/record"
)

func TestAChangedLimitReleasesTheChat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		to     *Budget
		reason string
	}{
		"raised":       {&Budget{Name: "a", Scope: OfChat, Cost: 50, Active: true}, "the limit was raised"},
		"raised less":  {&Budget{Name: "a", Scope: OfChat, Cost: 5.5, Active: true}, ""},
		"paused":       {&Budget{Name: "a", Scope: OfChat, Cost: 5}, "the budget is not what it was"},
		"of the other": {&Budget{Name: "a", Scope: OfChat, Chat: "c2", Cost: 5, Active: true}, "the budget is not what it was"},
		"cleared":      {nil, "the budget is not what it was"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			h := openFixture(t)
			set := setBudget(t, h, Budget{Name: "a", Scope: OfChat, Cost: 5})
			endStep(t, h, "c1", spentFunc(6, 0))
			if c.to == nil {
				_, err := h.Budgets.Records.Delete(t.Context(), record.Delete{Collection: Collection, Record: set.ID})
				is.NoErr(err)
			} else {
				saveBudget(t, h, *c.to)
			}
			is.NoErr(h.Budgets.Release(t.Context(), noon, spentFunc(6, 0)))
			_, data := handlerstest.History(t, h.Log, "c1")
			held, err := h.Budgets.Hold(t.Context(), "c1", 1, noon, spentFunc(6, 0))
			is.NoErr(err)
			is.Equal(held != nil, c.reason == "")
			if c.reason == "" {
				is.Equal(len(handlerstest.Of[events.PermissionExpired](data)), 0)
			} else {
				is.Equal(handlerstest.Of[events.PermissionExpired](data)[0].Reason, c.reason)
			}
			is.Equal(len(requestsIn(t, h.Log, "c1")), 1)
		})
	}
}

// A step does not reach a limit that was set after it, or a limit of another day.
func TestOlderStepsDoNotReachANewLimit(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	b := setBudget(t, h, Budget{Name: "a", Scope: OfDay, Cost: 5})
	step := Step{Chat: "c1", Seq: last, Time: noon, Turn: true}
	is.NoErr(h.Budgets.Pause(t.Context(), step, noon, spentFunc(6, 0)))
	step.Seq, step.Time = last+2, noon.Add(-24*time.Hour)
	is.NoErr(h.Budgets.Pause(t.Context(), step, noon, spentFunc(6, 0)))
	is.Equal(len(requestsIn(t, h.Log, "c1")), 0)
	step.Time = noon
	is.NoErr(h.Budgets.Pause(t.Context(), step, noon, spentFunc(6, 0)))
	is.Equal(len(requestsIn(t, h.Log, "c1")), 1)
	is.Equal(b.Name, "a")
}

func TestARequestOfADeletedChatIsReplaced(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: "c2"})
	is.NoErr(err)
	setBudget(t, h, Budget{Name: "a", Scope: OfDay, Cost: 5})
	endStep(t, h, "c1", spentFunc(6, 0))
	_, err = h.Chats.Delete(t.Context(), chat.Delete{Chat: "c1"})
	is.NoErr(err)
	held, err := h.Budgets.Hold(t.Context(), "c2", 1, noon, spentFunc(6, 0))
	is.NoErr(err)
	is.Equal(requestsIn(t, h.Log, "c2")[0].Permission, held.Permission) // a request in a chat that exists
	_, err = h.Budgets.Hold(t.Context(), "c1", 1, noon, spentFunc(6, 0))
	is.NoErr(err)
	is.Equal(len(requestsIn(t, h.Log, "c1")), 1)
}

func TestLimitsOfAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	of := func(b Budget) Budget {
		b.Name, b.ID, b.Scope, b.Tokens, b.Active = "a", "b1", OfDay, 1, true
		return b
	}
	count := func(b Budget) int { return len(limitsOf([]Budget{of(b)}, tree{root: "c1", owner: "ann"}, noon)) }
	is.Equal(count(Budget{}), 1)
	is.Equal(count(Budget{Cost: 1}), 2) // two units
	is.Equal(count(Budget{Chat: "c1", User: "ann"}), 1)
	is.Equal(count(Budget{Chat: "c2"}), 0)
	is.Equal(count(Budget{User: "bob"}), 0)
	late := time.Date(2026, 11, 21, 23, 30, 0, 0, time.FixedZone("west", -5*3600))
	is.Equal(limitsOf([]Budget{of(Budget{})}, tree{root: "c1"}, late)[0].day, "2026-11-22") // in UTC
}

func TestSuggestedAmountAllowsTheNextStep(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, c := range [][3]float64{{5, 5, 5}, {9.99, 5, 5}, {10, 5, 10}, {23, 5, 20}, {5, 4, 4}} {
		l := limit{base: c[1], amount: c[1], spent: c[0]}
		is.Equal(l.more(), c[2])
		l.amount += l.more()
		is.True(!l.reached())
	}
	sum := 0.0
	for range 10 {
		sum += 0.1
	}
	is.True(limit{amount: 1, spent: sum}.reached()) // 0.9999999999999999
}

// If the request was approved before the stop, nothing would resume the stopped turn.
func TestATurnIsNotStoppedAfterTheApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: "c2"})
	is.NoErr(err)
	setBudget(t, h, Budget{Name: "a", Scope: OfDay, Cost: 5})
	endStep(t, h, "c1", spentFunc(6, 0))
	a := &budgetRequest{id: requestsIn(t, h.Log, "c1")[0].Permission, chat: "c1"}
	is.NoErr(h.Budgets.stopTurn(t.Context(), "c2", a))
	decideMore(t, h, "c1", a.id, events.Authorized)
	is.NoErr(h.Budgets.stopTurn(t.Context(), "c2", a))
	_, data := handlerstest.History(t, h.Log, "c2")
	is.Equal(len(handlerstest.Of[events.AbortRequested](data)), 1)
	stopped, err := h.Budgets.Stopped(t.Context(), a.id)
	is.NoErr(err)
	is.Equal(len(stopped), 2)
}
