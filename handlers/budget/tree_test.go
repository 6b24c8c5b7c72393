package budget

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

// A delegate that reaches the budget of the person's chat is stopped, and the person is asked in that chat.
func TestABudgetOfAChatCountsItsDelegates(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	for _, delegate := range []string{"w1", "w2"} {
		handlerstest.Happened(t, h.Log, delegate, handlerstest.Fact{Data: events.ChatCreated{
			Parent: &events.Parent{Chat: "c1", Root: "c1", Depth: 1}}})
	}
	setBudget(t, h, Budget{Name: "a", Scope: OfChat, Cost: 5})
	var chats []string
	spent := func(_ context.Context, of Span) (float64, float64, error) {
		chats = append(chats, of.Chat)
		return 5, 0, nil
	}
	endStep(t, h, "w1", spent)
	is.Equal(chats, []string{"c1"}) // what the tree has spent
	requests := requestsIn(t, h.Log, "c1")
	is.Equal(len(requests), 1)
	is.Equal(len(requestsIn(t, h.Log, "w1")), 0)
	aborts := func(chat string) int {
		_, data := handlerstest.History(t, h.Log, chat)
		return len(handlerstest.Of[events.AbortRequested](data))
	}
	is.Equal([]int{aborts("w1"), aborts("c1")}, []int{1, 0})
	endStep(t, newFixture(h.Log), "w2", spent)
	is.Equal(aborts("w2"), 1) // for the same request
	is.Equal(len(requestsIn(t, h.Log, "c1")), 1)

	decideMore(t, h, "c1", requests[0].Permission, events.Authorized)
	stopped, err := h.Budgets.Stopped(t.Context(), requests[0].Permission)
	is.NoErr(err)
	is.Equal(len(stopped), 2) // both go on
}

func TestABudgetOfAProjectCountsItsChats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := openFixture(t)
	handlerstest.Happened(t, h.Log, "c1", handlerstest.Fact{Data: events.ChatCreated{Engine: "app"}})
	handlerstest.Happened(t, h.Log, "c2", handlerstest.Fact{Data: events.ChatCreated{}}) // of the first project
	setBudget(t, h, Budget{Name: "a", Scope: OfDay, Project: "app", Cost: 5})
	var spans []Span
	spent := func(_ context.Context, of Span) (float64, float64, error) {
		spans = append(spans, of)
		return 5, 0, nil
	}
	endStep(t, h, "c2", spent)
	is.Equal(len(requestsIn(t, h.Log, "c2")), 0)
	endStep(t, h, "c1", spent)
	is.Equal(spans, []Span{{Project: "app", Day: dayOf(noon)}})
	requests := requestsIn(t, h.Log, "c1")
	is.Equal(len(requests), 1)
	expect.Contains(t, requests[0].Message, "All chats in the project together have cost")
}

// A replica of the log that lags may not have a delegate's chat yet. The budget of its tree must not be passed over.
func TestTheTreeOfAChatIsNotGuessed(t *testing.T) {
	t.Parallel()
	h := openFixture(t)
	_, err := h.Budgets.treeOf(t.Context(), "not-there-yet")
	is.New(t).True(err != nil)
}
