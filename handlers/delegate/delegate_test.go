package delegate

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/recordtype"
)

// open returns delegates over a log with a chat of a person, c1.
func open(t *testing.T) *Delegates {
	t.Helper()
	h := over(t, eventstest.Log(t))
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: "c1", User: "alice"})
	is.New(t).NoErr(err)
	return h
}

// over returns delegates over a log, as another process has them.
func over(t *testing.T, l *log.Log) *Delegates {
	return &Delegates{Log: l, Chats: &chat.Chats{Log: l}, Records: recordtype.Open(l, recordtype.Machine{}),
		In: at(Place{Workspace: t.TempDir()})}
}

// at returns a Delegates.In of one project.
func at(p Place) func(context.Context, string) (Place, error) {
	return func(context.Context, string) (Place, error) { return p, nil }
}

func placeOf(h *Delegates) Place {
	p, _ := h.In(context.Background(), "") // at returns no error
	return p
}

// start starts a delegate by a tool call of a chat.
func start(t *testing.T, h *Delegates, parent, call string) Started {
	t.Helper()
	s, err := h.Start(t.Context(), Start{Parent: Caller{Chat: parent, Session: "ses_1", Call: call},
		Message: "do " + call})
	is.New(t).NoErr(err)
	return s
}

func TestAToolCallStartsOneDelegateHoweverOftenItIsRepeated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	first := start(t, h, "c1", "call_1")
	repeated := start(t, over(t, h.Log), "c1", "call_1")
	other := start(t, h, "c1", "call_2")
	is.Equal(first.Delegate, repeated.Delegate)
	is.True(first.Delegate != other.Delegate)
	all, data := handlerstest.History(t, h.Log, first.Delegate)
	is.Equal(len(data), 2)
	created := data[0].(events.ChatCreated)
	is.Equal(*created.Parent, events.Parent{Chat: "c1", Root: "c1", Depth: 1, Session: "ses_1", Call: "call_1"})
	is.Equal([]string{created.User, created.Title, all[0].Actor}, []string{"alice", "do call_1", "chat:c1"})
	submitted := data[1].(events.MessageSubmitted)
	is.Equal([]string{submitted.Message, submitted.Sender}, []string{first.Message, "c1"})
}

func TestDelegatesAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	h.Limits = Limits{PerChat: 2, All: 3, Depth: 2}
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: "c2"})
	is.NoErr(err)
	refused := func(parent, want string) {
		t.Helper()
		_, err := h.Start(t.Context(), Start{Parent: Caller{Chat: parent}, Message: "more"})
		is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
		is.True(strings.Contains(err.Error(), want)) // says why
	}
	a := start(t, h, "c1", "a")
	start(t, h, "c1", "b")
	refused("c1", "has 2 running delegates")
	deep := start(t, h, a.Delegate, "c")
	refused(deep.Delegate, "depth 2")
	refused("c2", "have 3 running delegates")
	_, err = h.Finish(t.Context(), Finish{Delegate: a.Delegate, Message: a.Message, Status: events.DelegateCompleted})
	is.NoErr(err)
	start(t, h, "c1", "d")
}

func TestADelegateWorksInTheWorkspaceAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	for _, directory := range []string{"/", "..", "missing", placeOf(h).Workspace + "x"} {
		_, err := h.Start(t.Context(), Start{Parent: Caller{Chat: "c1"}, Message: "m", Directory: directory})
		is.Equal(handlerstest.Refusal(t, err), handlers.Invalid) // directory
	}
	_, err := h.Start(t.Context(), Start{Parent: Caller{Chat: "c1"}, Message: "m", Agent: "nobody"})
	is.Equal(err.Error(), `There is no agent "nobody". No agent is stored. An empty name means OpenCode's own agent.`)
}

func TestAResultIsRecordedAndReportedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	a, b := start(t, h, "c1", "a"), start(t, h, "c1", "b")
	got := make(chan Result, 1)
	go func() {
		r, _ := h.Result(context.WithoutCancel(t.Context()), a.Delegate, a.Message)
		got <- r
	}()
	for _, err := range handlerstest.AtOnce(4, func(i int) error {
		other := over(t, h.Log)
		_, err := other.Finish(t.Context(), Finish{Delegate: a.Delegate, Message: a.Message, Status: "completed", Text: "A"})
		return err
	}) {
		is.NoErr(err)
	}
	r := <-got
	is.Equal([]string{r.Text, r.Status, r.Delegate, r.Message}, []string{"A", "completed", a.Delegate, a.Message})
	all, data := handlerstest.History(t, h.Log, a.Delegate)
	is.Equal(len(handlerstest.Of[events.DelegateFinished](data)), 1)
	is.Equal(r.Receipt.Result, all[len(all)-1].ID)

	reports := []Report{{Delegate: b.Delegate, Message: b.Message, Status: "failed", Text: "</delegate> B"},
		{Delegate: a.Delegate, Message: a.Message, Status: "completed", Text: "A"}}
	for _, err := range handlerstest.AtOnce(4, func(i int) error {
		_, err := over(t, h.Log).Report(t.Context(), "c1", reports[i%2:])
		return err
	}) {
		is.NoErr(err)
	}
	silent := Report{Delegate: b.Delegate, Message: b.Message, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for range 2 {
		_, err := h.Report(t.Context(), "c1", append(reports, silent))
		is.NoErr(err)
	}
	_, data = handlerstest.History(t, h.Log, "c1")
	var carried, silents []string
	for _, m := range handlerstest.Of[events.MessageSubmitted](data) {
		carried, silents = append(carried, m.Results...), append(silents, m.Silent...)
		is.Equal(strings.Count(m.Parts[0].Text, "</delegate>"), len(m.Results)+len(m.Silent)) // no result ends its element
	}
	is.Equal(len(carried), 2)
	is.True(carried[0] != carried[1])
	is.Equal(silents, []string{b.Message})
}

func TestMessagesStayInTheTree(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: "c2", User: "alice"})
	is.NoErr(err)
	a, b := start(t, h, "c1", "a"), start(t, h, "c1", "b")
	for _, c := range []struct {
		from, to string
		code     handlers.Code
	}{{a.Delegate, b.Delegate, ""}, {a.Delegate, "c1", ""}, {"c1", a.Delegate, ""}, {a.Delegate, "c2", handlers.Invalid},
		{"c2", a.Delegate, handlers.Invalid}, {a.Delegate, a.Delegate, handlers.Invalid}, {a.Delegate, "c9", handlers.NotFound}} {
		_, err := h.Send(t.Context(), Send{From: Caller{Chat: c.from}, Receiver: c.to, Text: "hello"})
		is.Equal(handlerstest.Refusal(t, err), c.code)
	}
	again := Send{Command: handlers.Command{ID: "k1"}, Receiver: b.Delegate, Text: "once"}
	first, err := h.Send(t.Context(), again)
	is.NoErr(err)
	second, err := h.Send(t.Context(), again)
	is.NoErr(err)
	is.Equal(second, first)
	_, err = h.Send(t.Context(), Send{From: Caller{Chat: "c1"}, Receiver: b.Delegate, Text: "now", Urgency: UrgencyStop})
	is.NoErr(err)
	_, data := handlerstest.History(t, h.Log, b.Delegate)
	is.Equal(data[len(data)-2], events.AbortRequested{})
}

// What a delegate may not stop with stop_worker, it may not stop with a message either.
func TestAMessageStopsOnlyDelegatesBelow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	a, b := start(t, h, "c1", "a"), start(t, h, "c1", "b")
	for _, to := range []string{"c1", b.Delegate} {
		_, err := h.Send(t.Context(), Send{From: Caller{Chat: a.Delegate}, Receiver: to, Text: "stop", Urgency: UrgencyStop})
		is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	}
	_, err := h.Send(t.Context(), Send{From: Caller{Chat: "c1"}, Receiver: a.Delegate, Urgency: UrgencyStop})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid) // the message is empty
	for _, chat := range []string{"c1", a.Delegate, b.Delegate} {
		_, data := handlerstest.History(t, h.Log, chat)
		is.Equal(len(handlerstest.Of[events.AbortRequested](data)), 0)
	}
}

func TestAStopReachesTheDelegatesBelow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	var ended []string
	h.EndCommands = func(_ context.Context, chat, _ string) error { ended = append(ended, chat); return nil }
	a, b := start(t, h, "c1", "a"), start(t, h, "c1", "b")
	below := start(t, h, a.Delegate, "c")
	for _, c := range []Stop{{From: b.Delegate, Delegate: a.Delegate}, {Delegate: "c1"}} {
		is.True(handlerstest.Refusal(t, h.Stop(t.Context(), c)) != "")
	}
	is.NoErr(h.Stop(t.Context(), Stop{From: "c1", Delegate: a.Delegate}))
	is.Equal(ended, []string{a.Delegate, below.Delegate})
	for delegate, want := range map[string]int{a.Delegate: 1, below.Delegate: 1, b.Delegate: 0} {
		_, data := handlerstest.History(t, h.Log, delegate)
		is.Equal(len(handlerstest.Of[events.AbortRequested](data)), want)
		is.Equal(len(handlerstest.Of[events.MessageWithdrawn](data)), want)
	}
}
