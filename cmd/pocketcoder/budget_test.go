package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/console"
	"pocketcoder/cmd/console/turn"
	"pocketcoder/events"
	"pocketcoder/expect"
	budgets "pocketcoder/handlers/budget"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections"
	"pocketcoder/projections/spending"
)

// budget runs the subcommand, which must succeed, and returns its output.
func (p *process) budget(t testing.TB, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, code := p.cli(t, "", append([]string{"budget"}, args...)...)
	if code != 0 {
		t.Fatalf("budget %v: %d %s", args, code, stderr)
	}
	return stdout
}

// budgetRequests returns the requests of a chat for more budget, in order.
func (p *process) budgetRequests(t testing.TB, chat string) (requests []projections.Permission) {
	t.Helper()
	for _, a := range rows[projections.Permission](t, p, "permissions", chat) {
		if a.Permission == permission.TypeBudget {
			requests = append(requests, a)
		}
	}
	return requests
}

// awaitBudgetRequest waits for the nth request of a chat for more budget, from 1, and until the policy has left it to
// a person.
func (p *process) awaitBudgetRequest(t testing.TB, chat string, n int) (request projections.Permission) {
	t.Helper()
	expect.Eventually(t, "more is asked for", func() bool {
		if all := p.budgetRequests(t, chat); len(all) >= n {
			request = all[n-1]
		}
		return request.ID != ""
	})
	if request.Status == projections.PermissionDraft {
		p.event(t, chat, events.PermissionReferred{}.Kind(), func(e events.Event) bool {
			return strings.Contains(string(e.Data), request.EnginePermission)
		})
	}
	return request
}

// countEvents returns the number of events of a chat by kind.
func (p *process) countEvents(t testing.TB, chat string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, kind := range p.kinds(t.Context(), chat) {
		count[kind]++
	}
	return count
}

// stepsScript returns a script of n steps. Each step uses the given tokens and reads a file. The last one says that it
// is over.
func stepsScript(n int, usage string) string {
	return strings.Repeat("@@usage "+usage+"\n"+call("todowrite", map[string]any{"todos": []any{}})+
		"\n@@next\n@@wait 3000\n", n) + "@@usage in=1\n@@say over"
}

// budgetStatus is a budget as budget list prints it.
type budgetStatus struct {
	budgets.Budget
	Spent *spending.Spending
}

// pricePerMillion is the price of a million tokens in openSystem.
const pricePerMillion = 10

func TestBudgetPausesAndAnApprovalResumes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	chat := p.create(t, "careful")
	p.budget(t, "set", "pauses", "--scope", "chat", "--chat", chat, "--cost", "0.5")
	p.submit(t, chat, stepsScript(3, "in=20000 out=10000")) // 0.3 a step
	request := p.awaitBudgetRequest(t, chat, 1)
	is.Equal(request.Source, "api")
	p.turnEnds(t, chat)
	expect.Lacks(t, p.text(t, chat), "over")
	p.submit(t, chat, "@@usage in=1\n@@say next") // it waits
	held := p.event(t, chat, events.MessageHeld{}.Kind(), nil)
	expect.Contains(t, string(held.Data), request.EnginePermission)
	is.Equal(p.row(t, chat).Turn, projections.TurnUser)

	p.approveUnlessDecided(t, chat, request)
	expect.Eventually(t, "it goes on", func() bool {
		return p.text(t, chat) != "" && strings.Contains(p.text(t, chat), "next")
	})
	p.event(t, chat, events.MessageSubmitted{}.Kind(), func(e events.Event) bool {
		return strings.Contains(string(e.Data), outbox.BudgetPrompt)
	})
	p.turnEnds(t, chat)
	n := p.countEvents(t, chat)
	is.Equal(n["permission.requested"], 1)
	is.Equal(n["abort.requested"], 1)
	is.Equal(n["message.held"], 1)
	is.Equal(n["message.submitted"], 3)
	list := p.budget(t, "list", "--json")
	var all []budgetStatus
	decode(t, list, &all)
	i := slices.IndexFunc(all, func(b budgetStatus) bool { return b.Name == "pauses" })
	is.Equal([]any{all[i].Chat, all[i].Cost, all[i].Spent.Tokens > 0}, []any{chat, 0.5, true})
}

func TestPausedTurnContinuesWhereItStopped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	chat := p.create(t, "careful")
	p.budget(t, "set", "goes on", "--scope", "chat", "--chat", chat, "--tokens", "50000")
	work := "@@usage in=30000\n" + call("todowrite", map[string]any{"todos": []any{}}) + "\n@@next\n"
	// a step that was stopped before its first text is repeated
	p.submit(t, chat, work+work+"@@wait 5000\n"+work+"@@usage in=1\n@@say over")
	request := p.awaitBudgetRequest(t, chat, 1)
	p.turnEnds(t, chat)
	p.approveUnlessDecided(t, chat, request)
	expect.Eventually(t, "it is over", func() bool { return strings.Contains(p.text(t, chat), "over") })
	p.turnEnds(t, chat)
	done := 0
	for _, c := range p.tools(t, chat) {
		if c.State.Status == "completed" {
			done++
		}
	}
	is.Equal(done, 3)
	is.Equal(p.resumes(t, chat), map[string]int{request.EnginePermission: 1})
	is.Equal(len(p.budgetRequests(t, chat)), 1)
}

func TestSubagentCountsAgainstTheBudgetOfItsChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	chat := p.create(t, "careful")
	p.budget(t, "set", "with subagents", "--scope", "chat", "--chat", chat, "--tokens", "50000")
	work := stepsScript(3, "in=30000")
	p.submit(t, chat, "@@usage in=1\n"+call("task", map[string]any{"description": "test", "subagent_type": "general",
		"prompt": work})+"\n@@next\n@@usage in=1\n@@say over")
	request := p.awaitBudgetRequest(t, chat, 1)
	p.turnEnds(t, chat)
	is.Equal(p.countEvents(t, chat)["abort.requested"], 1)
	var want struct{ Spent, Limit float64 }
	is.NoErr(json.Unmarshal([]byte(request.Metadata), &want))
	is.True(want.Spent >= 60000)
	is.Equal(want.Limit, 50000.0)
	agents := rows[projections.Subagent](t, p, "subagents", chat)
	is.Equal(len(agents), 1)
	is.True(agents[0].Status != projections.SubagentRunning)
}

// A conversation at a terminal shows the request for more budget. It continues after an approval and ends after a
// denial.
func TestConversationAsksForMoreBudget(t *testing.T) {
	t.Parallel()
	p := openSystem.system(t)
	for name, c := range map[string]struct {
		stdin, approve string
		code           cli.ExitCode
		output         string
	}{
		"allowed":           {"y\n", console.ApproveAsk, turn.Completed, "over"},
		"everything is":     {"", console.ApproveAll, turn.Completed, "over"},
		"denied":            {"n\n", console.ApproveAsk, turn.Denied, ""},
		"left for a person": {"", console.ApproveAsk, turn.Pending, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			chat := p.create(t, "careful")
			p.budget(t, "set", name, "--scope", "chat", "--chat", chat, "--tokens", "25000")
			stdout, stderr, code := p.cli(t, c.stdin, "chat", chat, "-m", stepsScript(1, "in=30000"), "--approve", c.approve)
			t.Log(stdout, stderr)
			is.Equal(cli.ExitCode(code), c.code)
			expect.Contains(t, stdout, "the budget “"+name+"” allows 25000")
			is.Equal(strings.Contains(stdout, "over"), c.output != "")
		})
	}
}

func TestForkStartsWithoutCost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "dear"})
	admin.say(t, chat, "@@usage in=30000\n@@say dear")
	p.turnEnds(t, chat)
	var forked record
	admin.must(t, "POST", "/api/pocketcoder/chats/"+chat+"/fork", record{}, &forked)
	fork := forked["id"].(string)
	expect.Eventually(t, "the fork has the history", func() bool { return strings.Contains(p.text(t, fork), "dear") })
	admin.say(t, fork, "@@usage in=7\n@@say cheap")
	expect.Eventually(t, "it is answered", func() bool { return strings.Contains(p.text(t, fork), "cheap") })
	p.turnEnds(t, fork)
	for chat, tokens := range map[string]int64{chat: 30000, fork: 7} {
		var spent spending.Spending
		is.NoErr(p.Query(t.Context(), "spent", map[string]any{"chat": chat}, &spent))
		is.Equal(spent.Tokens, tokens)
		is.Equal(spent.Cost, float64(tokens)*pricePerMillion/1e6)
	}
}

func TestBudgetsAreSetListedAndCleared(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, "@@usage in=7\n@@say hello")
	p.turnEnds(t, chat)
	p.budget(t, "set", "one chat", "--scope", "chat", "--chat", chat, "--tokens", "100000", "--cost", "2.5")
	p.budget(t, "set", "a person", "--user", adminEmail, "--tokens", "900000000")
	list := p.budget(t, "list")
	expect.Contains(t, list, "US$0.00 of US$2.50")
	expect.Contains(t, list, "7 of 100000")
	p.budget(t, "set", "one chat", "--scope", "chat", "--chat", chat, "--tokens", "5")
	expect.Contains(t, p.budget(t, "list"), "7 of 5")
	p.budget(t, "clear", "one chat")
	p.budget(t, "clear", "a person")
	expect.Lacks(t, p.budget(t, "list"), "one chat")
	for output, args := range map[string][]string{
		"needs one of them above 0":   {"set", "x"},
		"want \"chat\" or \"day\"":    {"set", "x", "--scope", "week", "--cost", "1"},
		"or a number from 1e-06":      {"set", "x", "--cost", "-1"},
		"there is no budget \"x\"":    {"clear", "x"},
		"there is no chat nowhere":    {"set", "x", "--chat", "nowhere", "--cost", "1"},
		"there is no account a@b.org": {"set", "x", "--user", "a@b.org", "--cost", "1"},
		"wrong number of arguments":   {"set"},
		"there is no \"limit\"":       {"limit"},
	} {
		_, stderr, code := p.cli(t, "", append([]string{"budget"}, args...)...)
		is.True(code != 0)
		expect.Contains(t, stderr, output) // stderr names the error
	}
}

// spentToday returns the tokens that all chats have spent since midnight.
func spentToday(t *testing.T, p *process) int64 {
	t.Helper()
	p.budget(t, "set", "all", "--tokens", "1000000000")
	defer p.budget(t, "clear", "all")
	var list []budgetStatus
	decode(t, p.budget(t, "list", "--json"), &list)
	return list[0].Spent.Tokens
}

// A kill at any moment leaves one request and one continue prompt, and no chat sends a message before the decision.
func killsOfBudgets(t *testing.T, p *process) {
	runStages(t, p, stage{"crossed", killWhenLimitIsCrossed},
		stage{"asked and resumed and decided", killWhileMoreIsAskedFor})
}

// crossesLimit is a script whose first step spends more than limitToCross tokens.
var crossesLimit = stepsScript(2, "in=1 out=50000")

const limitToCross = 40000

// limitIsCrossed is the moment at which the log has the tokens of the first step of crossesLimit.
func limitIsCrossed(_ *testing.T, _ *process, e events.Event) bool {
	return e.Subject.Kind == "opencode.message.updated" && strings.Contains(string(e.Data), `"output":50000`)
}

func isResumption(e events.Event) bool { return strings.Contains(string(e.Data), "resumes") }

// The limit is for all chats.
func killWhenLimitIsCrossed(t *testing.T, p *process) {
	is := is.New(t)
	p.budget(t, "set", "crossed", "--tokens", fmt.Sprint(spentToday(t, p)+limitToCross))
	chat, other := p.create(t, "crossed"), p.create(t, "another")
	defer func() {
		if t.Failed() {
			t.Log(p.describeChat(chat))
		}
	}()
	p.killWhen(t, chat, crossesLimit, limitIsCrossed)
	p.restart()
	p.submit(t, other, "@@usage in=1\n@@say hello")
	requests := func() []projections.Permission {
		return append(p.budgetRequests(t, chat), p.budgetRequests(t, other)...)
	}
	expect.Eventually(t, "more is asked for, in whichever chat is looked at first", func() bool {
		return len(requests()) > 0
	})
	request := requests()[0]
	p.event(t, other, events.MessageHeld{}.Kind(), nil)
	p.event(t, chat, events.AbortRequested{}.Kind(), nil)
	is.Equal(p.text(t, other), "")
	p.approveUnlessDecided(t, request.Chat, request)
	p.event(t, chat, "message.submitted", isResumption)
	p.budget(t, "clear", "crossed") // the rest is not part of this test
	expect.Eventually(t, "the other chat goes on", func() bool { return p.text(t, other) == "hello" })
	p.turnEnds(t, chat)
	checkResumedOnce(t, p, chat, request)
	is.Equal(len(requests()), 1)
}

// checkResumedOnce checks that a turn was stopped once for more budget, and resumed once.
func checkResumedOnce(t *testing.T, p *process, chat string, request projections.Permission) {
	t.Helper()
	is := is.New(t)
	is.Equal(p.resumes(t, chat), map[string]int{request.EnginePermission: 1})
	is.Equal(p.countEvents(t, chat)["abort.requested"], 1)
}

// Each chat has its own limit, so one kill hits three states. OpenCode is paused first, so that it does not receive the
// abort of the chat "asked".
func killWhileMoreIsAskedFor(t *testing.T, p *process) {
	is := is.New(t)
	chats, requests := map[string]string{}, map[string]projections.Permission{}
	for _, name := range []string{"resumed", "decided", "asked"} {
		chats[name] = p.create(t, name)
		p.budget(t, "set", name, "--scope", "chat", "--chat", chats[name], "--tokens", fmt.Sprint(limitToCross))
	}
	defer func() {
		if t.Failed() {
			for _, chat := range chats {
				t.Log(p.describeChat(chat))
			}
		}
	}()
	for _, name := range []string{"resumed", "decided"} {
		p.submit(t, chats[name], crossesLimit)
		requests[name] = p.awaitBudgetRequest(t, chats[name], 1)
		p.turnEnds(t, chats[name])
	}
	p.runUntil(t, chats["asked"], crossesLimit, limitIsCrossed, func() {
		_, pid := p.engine(t)
		stopProcess(t, innermostPID(pid))
	})
	requests["asked"] = p.awaitBudgetRequest(t, chats["asked"], 1)
	p.approveUnlessDecided(t, chats["resumed"], requests["resumed"])
	p.event(t, chats["resumed"], "message.submitted", isResumption)
	p.approveUnlessDecided(t, chats["decided"], requests["decided"])
	p.kill()
	p.restart()

	p.submit(t, chats["asked"], "@@usage in=1\n@@say hello")
	p.event(t, chats["asked"], events.MessageHeld{}.Kind(), nil)
	expect.Lacks(t, p.text(t, chats["asked"]), "hello")
	p.approveUnlessDecided(t, chats["asked"], requests["asked"])
	for name, chat := range chats {
		p.event(t, chat, "message.submitted", isResumption)
		p.budget(t, "clear", name) // the rest is not part of this test
	}
	expect.Eventually(t, "the next message is answered", func() bool {
		return strings.HasSuffix(p.text(t, chats["asked"]), "hello")
	})
	for name, chat := range chats {
		p.turnEnds(t, chat)
		checkResumedOnce(t, p, chat, requests[name])
		is.Equal(len(p.budgetRequests(t, chat)), 1) // name
	}
}
