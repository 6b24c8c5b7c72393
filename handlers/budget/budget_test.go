package budget

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fixture holds the handlers of one log, with budgets.
type fixture struct {
	*permissiontest.Handlers
	Budgets *Budgets
}

func newFixture(l *log.Log) *fixture {
	h := permissiontest.New(l, Type)
	return &fixture{h, &Budgets{Records: h.Records, Permissions: h.Permissions}}
}

func openFixture(t testing.TB) *fixture { return newFixture(permissiontest.Open(t).Log) }

// spentFunc returns a SpendingFunc with fixed amounts.
func spentFunc(cost, tokens float64) SpendingFunc {
	return func(context.Context, Span) (float64, float64, error) { return cost, tokens, nil }
}

func setBudget(t testing.TB, h *fixture, b Budget) Budget {
	t.Helper()
	b.Active = true
	return saveBudget(t, h, b)
}

// saveBudget creates a budget, or changes the one of its name.
func saveBudget(t testing.TB, h *fixture, b Budget) Budget {
	t.Helper()
	var err error
	b.ID, _, err = h.Budgets.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
		Collection: Collection, New: true, Upsert: true, Set: record.Fields(map[string]any{"name": b.Name,
			"scope": b.Scope, "chat": b.Chat, "user": b.User, "project": b.Project, "cost": b.Cost, "tokens": b.Tokens, "active": b.Active})})
	is.New(t).NoErr(err)
	return b
}

// endStep calls Pause for a step of the chat's running turn.
func endStep(t testing.TB, h *fixture, chat string, spent SpendingFunc) {
	t.Helper()
	is := is.New(t)
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.NoErr(h.Budgets.Pause(t.Context(), Step{Chat: chat, Seq: last, Time: noon, Turn: true, Began: 1}, noon, spent))
}

func requestsIn(t testing.TB, l *log.Log, chat string) []events.PermissionRequested {
	t.Helper()
	_, data := handlerstest.History(t, l, chat)
	return handlerstest.Of[events.PermissionRequested](data)
}

func decideMore(t testing.TB, h *fixture, chat, id string, d events.Decision) {
	t.Helper()
	_, err := h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Admin: true, Chat: chat, Permission: id, Decision: d})
	is.New(t).NoErr(err)
}

func TestEachReachedLimitHasOneRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	b := setBudget(t, h, Budget{Name: "a", Scope: OfChat, Cost: 5})
	endStep(t, h, "c1", spentFunc(4.99, 0))
	is.Equal(len(requestsIn(t, h.Log, "c1")), 0)
	for range 2 {
		endStep(t, h, "c1", spentFunc(5, 0))
		endStep(t, newFixture(h.Log), "c1", spentFunc(5.5, 0)) // after a restart
	}
	first := requestsIn(t, h.Log, "c1")
	is.Equal(len(first), 1)
	is.Equal(first[0].Type, events.KindBudget)
	var metadata budgetMetadata
	is.NoErr(json.Unmarshal(first[0].Metadata, &metadata))
	is.Equal(metadata, budgetMetadata{Budget: b.ID, Name: "a", Scope: "chat", Unit: "cost", Limit: 5, Spent: 5, More: 5})
	all, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(handlerstest.Of[events.AbortRequested](data)), 1)
	is.Equal([]string{all[len(all)-1].Actor, all[len(all)-1].Cause}, []string{events.ActorPolicy, first[0].Permission})

	decideMore(t, h, "c1", first[0].Permission, events.Authorized)
	stopped, err := h.Budgets.Stopped(t.Context(), first[0].Permission)
	is.NoErr(err)
	is.Equal(stopped, []string{"c1"})
	endStep(t, h, "c1", spentFunc(9.99, 0))
	is.Equal(len(requestsIn(t, h.Log, "c1")), 1)
	endStep(t, h, "c1", spentFunc(10, 0))
	requests := requestsIn(t, h.Log, "c1")
	is.Equal(len(requests), 2)
	is.True(requests[1].Permission != first[0].Permission)
}

func TestConcurrentStepsShareOneRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	for _, chatID := range []string{"c2", "c3"} {
		_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: chatID})
		is.NoErr(err)
	}
	setBudget(t, h, Budget{Name: "a", Scope: OfDay, Tokens: 100})
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	var all sync.WaitGroup
	results := make([]*MessageHold, 30)
	for i := range results {
		all.Go(func() {
			chat := fmt.Sprint("c", 1+i%3)
			if i%2 == 0 {
				results[i] = &MessageHold{}
				if err := h.Budgets.Pause(t.Context(), Step{Chat: chat, Seq: last, Time: noon, Turn: true, Began: 1}, noon,
					spentFunc(0, 150)); err != nil {
					t.Error(err)
				}
				return
			}
			var err error
			if results[i], err = h.Budgets.Hold(t.Context(), chat, 1, noon, spentFunc(0, 150)); err != nil || results[i] == nil {
				t.Error(results[i], err)
			}
		})
	}
	all.Wait()
	n, stopped := 0, 0
	for _, chat := range []string{"c1", "c2", "c3"} {
		_, data := handlerstest.History(t, h.Log, chat)
		n, stopped = n+len(handlerstest.Of[events.PermissionRequested](data)),
			stopped+len(handlerstest.Of[events.AbortRequested](data))
	}
	is.Equal([]int{n, stopped}, []int{1, 3})
	for i, held := range results {
		if i%2 == 1 {
			is.Equal(held.Permission, results[1].Permission)
		}
	}
}

func TestADeniedBudgetHoldsWhatWasThereAndAsksForWhatComes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	setBudget(t, h, Budget{Name: "a", Scope: OfDay, Cost: 5})
	hold := func(seq uint64, at time.Time, spent SpendingFunc) *MessageHold {
		t.Helper()
		held, err := h.Budgets.Hold(t.Context(), "c1", seq, at, spent)
		is.NoErr(err)
		return held
	}
	is.Equal(hold(1, noon, spentFunc(4, 0)), nil)
	first := hold(1, noon, spentFunc(6, 0))
	is.Equal(hold(2, noon, spentFunc(6, 0)), first)
	decideMore(t, h, "c1", first.Permission, events.Denied)
	denied := hold(1, noon, spentFunc(6, 0))
	is.Equal(denied.Permission, first.Permission)
	is.True(denied.Reason != first.Reason)
	later, err := h.Log.Last(t.Context())
	is.NoErr(err)
	second := hold(later+1, noon, spentFunc(6, 0))
	is.True(second.Permission != first.Permission)
	is.Equal(hold(1, noon, spentFunc(6, 0)), second) // both messages wait for the second request
	is.Equal(len(requestsIn(t, h.Log, "c1")), 2)

	tomorrow := noon.Add(24 * time.Hour)
	is.Equal(hold(1, tomorrow, spentFunc(0, 0)), nil)
	is.NoErr(h.Budgets.Release(t.Context(), noon, spentFunc(6, 0)))
	is.NoErr(h.Budgets.Release(t.Context(), tomorrow, spentFunc(0, 0)))
	is.NoErr(h.Budgets.Release(t.Context(), tomorrow, spentFunc(0, 0)))
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(handlerstest.Of[events.PermissionExpired](data),
		[]events.PermissionExpired{{Permission: second.Permission, Reason: "the day is over"}})
	_, err = h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Admin: true, Chat: "c1", Permission: second.Permission, Decision: events.Authorized})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
}

func TestNobodyElseAsksForMore(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	b := setBudget(t, h, Budget{Name: "a", Scope: OfChat, Cost: 5})
	forged := permissiontest.SubmitBash("forged", "")
	forged.Type = events.KindBudget
	_, _, err := h.Permissions.Submit(t.Context(), forged)
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)

	l := limit{Budget: b, unit: unitCost, chat: "c1"}
	squat := permissiontest.SubmitBash((&budgetRequests{}).nextID(l.key()), "true") // its id, for something else
	_, _, err = h.Permissions.Submit(t.Context(), squat)
	is.NoErr(err)
	endStep(t, h, "c1", spentFunc(6, 0))
	all := requestsIn(t, h.Log, "c1")
	is.Equal(len(all), 2)
	is.Equal(all[1].Type, events.KindBudget)
	decideMore(t, h, "c1", squat.Permission, events.Authorized)
	held, err := h.Budgets.Hold(t.Context(), "c1", 1, noon, spentFunc(6, 0))
	is.NoErr(err)
	is.Equal(held.Permission, all[1].Permission)
}

func TestNoRuleAllowsMore(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	setBudget(t, h, Budget{Name: "a", Scope: OfChat, Cost: 5})
	g := permissiontest.GateOn(h.Handlers)
	g.Rules = []policy.Rule{{Permission: events.KindBudget, Pattern: "*"},
		{Permission: events.KindBudget, Pattern: "a"}}
	endStep(t, h, "c1", spentFunc(6, 0))
	all, _ := handlerstest.History(t, h.Log, "c1")
	for _, e := range all {
		if e.Subject.Kind == (events.PermissionRequested{}).Kind() {
			is.NoErr(g.React(t.Context(), e))
		}
	}
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(handlerstest.Of[events.PermissionDecided](data)), 0)
	is.Equal(len(handlerstest.Of[events.PermissionReferred](data)), 1)
}

// The owner of a chat decides neither about the spending of others nor about a limit on the owner.
func TestOnlyAdministratorsDecideAboutABudgetOfSeveralChats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		budget Budget
		shared bool
	}{
		"each chat":            {Budget{Scope: OfChat}, false},
		"a chat":               {Budget{Scope: OfChat, Chat: "c1"}, false},
		"a chat's day":         {Budget{Scope: OfDay, Chat: "c1"}, false},
		"the day":              {Budget{Scope: OfDay}, true},
		"an account's day":     {Budget{Scope: OfDay, User: "alice"}, true},
		"each of an account's": {Budget{Scope: OfChat, User: "alice"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			h := openFixture(t)
			owner := "alice"
			_, err := h.Chats.Update(t.Context(), chat.Update{Chat: "c1", User: &owner})
			is.NoErr(err)
			c.budget.Name, c.budget.Cost = "a", 5
			setBudget(t, h, c.budget)
			endStep(t, h, "c1", spentFunc(6, 0))
			request := requestsIn(t, h.Log, "c1")[0]
			is.Equal(permission.ForAdministrators(request.Type, request.Metadata), c.shared)
			is.Equal(strings.HasSuffix(request.Message, "? Only an administrator decides."), c.shared)
			held, err := h.Budgets.Hold(t.Context(), "c1", 1, noon, spentFunc(6, 0))
			is.NoErr(err)
			is.Equal(strings.Contains(held.Reason, "waits until an administrator decides about more"), c.shared)
			decide := func(admin bool) error {
				_, err := h.Permissions.Decide(t.Context(), permission.Decide{
					Command: handlers.Command{Actor: handlerstest.Alice}, Admin: admin, Chat: "c1", Permission: request.Permission, Decision: events.Authorized,
				})
				return err
			}
			if c.shared {
				is.Equal(handlerstest.Refusal(t, decide(false)), handlers.Invalid)
			}
			is.NoErr(decide(c.shared))
		})
	}
}

// If several limits are reached, one is requested at a time.
func TestSeveralLimitsAreAskedAboutOneByOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	setBudget(t, h, Budget{Name: "a", Scope: OfChat, Cost: 8})
	setBudget(t, h, Budget{Name: "z", Scope: OfDay, Cost: 5})
	endStep(t, h, "c1", spentFunc(6, 0))
	endStep(t, h, "c1", spentFunc(9, 0)) // both limits are reached, and the request for z is pending
	all := requestsIn(t, h.Log, "c1")
	is.Equal(len(all), 1)
	is.Equal(all[0].Patterns, []string{"z"})
	decideMore(t, h, "c1", all[0].Permission, events.Denied)
	held, err := h.Budgets.Hold(t.Context(), "c1", 1, noon, spentFunc(9, 0))
	is.NoErr(err)
	is.Equal(held.Permission, all[0].Permission) // an approval of the other would not help
	is.Equal(len(requestsIn(t, h.Log, "c1")), 1)
}
