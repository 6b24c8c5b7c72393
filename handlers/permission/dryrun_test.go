package permission_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/policy"
	"pocketcoder/projections"
)

var allowMake = policy.Rule{Permission: "bash", Pattern: "make*", Action: policy.Allow}

func TestDryRunTellsWhatWouldHaveBeenAllowed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	_, _, err := g.Chats.Create(t.Context(), chat.Create{Chat: "c2"})
	is.NoErr(err)
	handlerstest.Happened(t, g.Log, "c1",
		handlerstest.Bash("per_1", "make"), handlerstest.Bash("per_2", "make"),
		handlerstest.Bash("per_3", "make test"), handlerstest.Bash("per_4", "rm x"),
		handlerstest.Bash("per_5", "git status"),
		handlerstest.Bash("per_6", "make"), handlerstest.Replied("per_6"), handlerstest.Bash("per_7", "make"),
		handlerstest.Fact{Data: events.PermissionExpired{Permission: "per_7", Reason: "gone"}},
		handlerstest.Bash("per_1", "make")) // heard twice
	handlerstest.Happened(t, g.Log, "c2", handlerstest.Bash("per_9", "make"))
	g.AwaitIdle()
	g.Decide("per_1", events.Authorized)
	g.Decide("per_2", events.Denied)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Replied("per_1"), handlerstest.Replied("per_2")) // OpenCode's echo
	before, err := g.Log.Last(t.Context())
	is.NoErr(err)

	run, err := g.Gate.DryRun(t.Context(), allowMake, "c1")
	is.NoErr(err)
	is.Equal(run.Requests, 8) // AwaitIdle appends one request too
	is.Equal(run.Allowed, 5)
	is.Equal(len(run.Commands), 2)
	is.Equal(run.Commands[0].Text, "make")
	is.Equal(run.Commands[0].Count, 4)
	is.Equal(run.Commands[0].Decided, map[string]int{"authorized": 1, "denied": 1, "answered in OpenCode": 1,
		"expired": 1})
	is.Equal(run.Commands[1].Text, "make test")
	is.Equal(run.Commands[1].Decided, map[string]int{"waiting": 1})
	run, err = g.Gate.DryRun(t.Context(), allowMake, "")
	is.NoErr(err)
	is.Equal([]int{run.Requests, run.Allowed}, []int{9, 6})
	run, err = g.Gate.DryRun(t.Context(), policy.Rule{Permission: "bash", Pattern: "git status*"}, "")
	is.NoErr(err)
	is.Equal(run.Commands[0].Decided, map[string]int{"authorized by a rule": 1})
	run, err = g.Gate.DryRun(t.Context(), policy.Rule{Permission: "bash", Pattern: "rm*", Action: policy.Deny}, "")
	is.NoErr(err)
	is.Equal(run.Allowed, 1) // would have been denied
	last, err := g.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, before) // nothing is stored

	for chat, want := range map[string][]string{"": {"per_9", "per_7"}, "c1": {"per_7", "per_6"}} {
		var last []string
		is.NoErr(g.Gate.History(t.Context(), chat, func(r events.PastRequest) bool {
			last = append(last, r.Request.ID)
			return len(last) <= len(want)
		}))
		is.Equal(last[1:], want) // last[0] is the request of AwaitIdle
	}

	_, err = g.Gate.DryRun(t.Context(), policy.Rule{Permission: "bash"}, "")
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	_, err = g.Gate.DryRun(t.Context(), allowMake, "a.b")
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Gate.DryRun(ended, allowMake, "")
	is.True(errors.Is(err, context.Canceled))
}

func TestADryRunEvaluatesTheRuleTogetherWithTheActiveRulesOfEachChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t) // its default rules allow "ls"
	_, _, err := g.Chats.Create(t.Context(), chat.Create{Chat: "c2"})
	is.NoErr(err)
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "c2allowsmake", `{"tool":"bash","pattern":"make*",
		"action":"allow","chat":"c2","active":true}`)
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "deniestouch", `{"tool":"bash","pattern":"touch secret*",
		"action":"deny","active":true}`)
	for i, command := range []string{"touch one", "touch one two && ls -la", "touch a && make", "touch secret", "ls -la"} {
		handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash(fmt.Sprintf("per_1%d", i), command))
	}
	handlerstest.Happened(t, g.Log, "c2", handlerstest.Bash("per_21", "touch a && make"))
	touch := policy.Rule{Permission: "bash", Pattern: "touch *"}
	allowed := func(r permission.DryRunResult, err error) (commands []string) {
		t.Helper()
		is.NoErr(err)
		for _, c := range r.Commands {
			commands = append(commands, fmt.Sprintf("%d× %s", c.Count, c.Text))
		}
		slices.Sort(commands)
		return commands
	}
	inChat := []string{"1× touch one", "1× touch one two && ls -la"} // not what a rule denies, or ls, which needs no rule
	is.Equal(allowed(g.Gate.DryRun(t.Context(), touch, "c1")), inChat)
	everywhere := []string{"1× touch a && make", "1× touch one", "1× touch one two && ls -la"}
	is.Equal(allowed(g.Gate.DryRun(t.Context(), touch, "")), everywhere)

	c := permission.AllowAlways{Chat: "c1", Permission: "per_10", Scope: permission.ScopeChat, Pattern: touch.Pattern}
	p, err := g.Gate.ProposeAlways(t.Context(), c)
	is.Equal(allowed(p.Chat, err), inChat)
	is.Equal(allowed(p.All, err), everywhere)

	// what the dry run counts is what runs once the rule is stored
	g.AwaitIdle()
	permissiontest.SaveRecord(t, g.Handlers, "tool_permissions", "allowstouch", `{"tool":"bash","pattern":"touch *",
		"action":"allow","active":true}`)
	for _, id := range []string{"per_10", "per_11"} {
		handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool {
			return d.Permission == id && d.Decision == events.Authorized
		})
	}
	waiting, _ := g.Decisions("per_12")
	is.Equal(len(waiting), 0)
}

// BenchmarkDryRun tries a rule on a log of 100,000 requests, each referred and decided.
func BenchmarkDryRun(b *testing.B) {
	is := is.New(b)
	h := permissiontest.New(eventstest.Log(b))
	const n = 100_000
	for i := range 100 {
		_, _, err := h.Chats.Create(b.Context(), chat.Create{Chat: fmt.Sprintf("c%d", i)})
		is.NoErr(err)
	}
	all := make([]events.Event, 0, 3*n)
	for i := range n {
		id, command := fmt.Sprintf("per_%d", i), fmt.Sprintf("go test -run Test%d ./pkg%d", i%5000, i%50)
		chat := fmt.Sprintf("c%d", i%100)
		all = append(all, handlerstest.Bash(id, command).Event(b, chat),
			handlerstest.Fact{By: events.ActorPolicy, Data: events.PermissionReferred{Permission: id,
				Reason: "no rule allows it", Cwd: "/"}}.Event(b, chat),
			handlerstest.Decided(id, command, events.Authorized).Event(b, chat))
	}
	last, err := h.Log.AppendAll(b.Context(), all)
	is.NoErr(err)
	model, err := projections.Open(b.Context(), b.TempDir(), h.Log)
	is.NoErr(err)
	defer model.Close()
	go model.Run(b.Context())
	is.NoErr(model.Wait(b.Context(), last))
	g := permissiontest.GateOn(h)
	g.History = model.PastRequests
	g.Session = func(string) (permission.Session, bool) { return permission.Session{}, false }
	for b.Loop() {
		began := time.Now()
		run, err := g.DryRun(b.Context(), policy.Rule{Permission: "bash", Pattern: "go test*"}, "")
		is.NoErr(err)
		is.Equal([]int{run.Requests, run.Allowed}, []int{permission.MaxDryRunRequests, permission.MaxDryRunRequests})
		b.ReportMetric(time.Since(began).Seconds()*1000, "ms")
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapInuse>>20), "heap-MiB")
	}
}
