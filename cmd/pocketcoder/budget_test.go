package main

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
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
		if a.Permission == events.KindBudget {
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
	if request.Status == events.Draft {
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

// pricePerMillion is the price of a million tokens in openSystem.
const pricePerMillion = 10

func TestBudgetsAreSetListedAndCleared(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	chat := p.create(t, "counted")
	p.turn(t, chat, "hello", "hello") // 7 tokens
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
		"Must be one of chat, day":    {"set", "x", "--scope", "week", "--cost", "1"},
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
