package projections_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func TestAnEngineHasSomethingToDoUntilItsWorkEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	s := &eventBuilder{t: t}
	demand := func() projections.Demand {
		t.Helper()
		all, err := m.Demands(t.Context())
		is.NoErr(err)
		d := all[engine]
		d.Engine = ""
		return d
	}
	feed(t, m, s.created())
	is.Equal(demand(), projections.Demand{})
	submitted := s.own(events.MessageSubmitted{Message: msg1, Parts: []events.Part{{Type: "text", Text: "hello"}}})
	feed(t, m, submitted)
	waits := demand().Since
	is.True(waits > 0)
	feed(t, m, s.own(events.MessageHeld{Message: msg1, Permission: "b1", Reason: "the budget is used up"}))
	is.Equal(demand(), projections.Demand{Waits: true})
	feed(t, m, s.own(events.AbortRequested{Session: child}))
	is.True(demand().Since > waits) // of the abort alone
}

func TestDemandsReadOnlyWhatIsOpen(t *testing.T) {
	t.Parallel()
	plan := queryPlan(t, still(t), projections.SelectDemands)
	for _, index := range []string{"messages_outbox", "effects_open", "permissions_unreplied", "permissions_kept",
		"questions_open", "sessions_running", "executions_running"} {
		expect.Contains(t, plan, index)
	}
	for line := range strings.SplitSeq(plan, "\n") {
		if strings.HasPrefix(line, "SCAN") && !strings.Contains(line, "INDEX") && !strings.Contains(line, "subquery") {
			t.Errorf("it reads a whole table: %s", line)
		}
	}
}
