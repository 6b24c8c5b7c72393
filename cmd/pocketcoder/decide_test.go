package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/console"
	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

func TestEditedCommandRunsAndTheModelIsInformed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("printf '%s\\n' orig''inal >edited.out"))
	request := p.awaitRequest(t, chat, 0)
	const edited = "printf '%s\\n' ed''ited"
	stdout, stderr, code := p.cli(t, "e "+edited+"\n", "chat", chat)
	t.Log(stdout, stderr)
	is.Equal(code, console.Completed)
	is.True(strings.Contains(stdout, "-"+request.Command()) && strings.Contains(stdout, "+"+edited)) // the difference is shown
	is.True(strings.Contains(stdout, "│ edited\n") && strings.Contains(stdout, "done"))
	output := p.tools(t, chat)[0].State.Output // what the model sees
	is.True(strings.Contains(output, request.Command()) && strings.Contains(output, edited))
	is.Equal(p.finished(t, chat, 0).Stdout.Text, "edited\n") // and what is recorded is the command's own

	why := p.explain(t, request.ID)
	is.Equal([]string{why.Request.Command, why.Decision.Edited, why.Decision.Decision, why.Decision.Actor},
		[]string{request.Command(), edited, "authorized", "user:operator"})
	is.Equal(why.Decision.Device, "command line")
	is.Equal(len(why.Executions), 1)
	ran := why.Executions[0]
	is.Equal([]any{ran.Command, ran.Original, ran.Status, ran.ExitCode},
		[]any{edited, request.Command(), events.ExecutionCompleted, 0})
	is.True(why.Referred != nil && why.Referred.Reason != "")
	is.True(len(why.Rules) > 0)
	var kinds []string
	for _, e := range why.Events {
		kinds = append(kinds, e.Type)
	}
	for _, linked := range []string{"opencode.permission.asked", "permission.referred", "permission.decided",
		"exec.requested", "exec.finished"} {
		is.True(slices.Contains(kinds, linked)) // linked
	}
	is.True(slices.IsSortedFunc(why.Events, func(a, b permission.WhyEvent) int { return int(a.Seq) - int(b.Seq) }))
	text, _, code := p.cli(t, "", "why", store.RecordID(request.ID)) // the same by the record's id, for a person
	is.Equal(code, 0)
	for _, words := range []string{"-" + request.Command(), "+" + edited, "$ " + edited, "exit 0", why.Referred.Reason,
		"permission.decided", fmt.Sprintf("#%d", why.Events[0].Seq)} {
		expect.Contains(t, text, words) // words
	}
	replayed, _, _ := p.cli(t, "", "replay", chat)
	is.True(strings.Contains(replayed, "why: "+why.Referred.Reason) && strings.Contains(replayed, "+"+edited))
}

// explain runs policy why about a request.
func (p *process) explain(t testing.TB, id string) (why permission.Why) {
	t.Helper()
	stdout, stderr, code := p.cli(t, "", "why", id, "--json")
	if code != 0 {
		t.Fatalf("why %s: %d %s", id, code, stderr)
	}
	decode(t, stdout, &why)
	return why
}

func TestRuleFromARequestAppliesUntilItIsRevoked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("touch of-a-rule"))
	p.awaitRequest(t, chat, 0)
	stdout, stderr, code := p.cli(t, "a\ny\n", "chat", chat)
	t.Log(stdout, stderr)
	is.Equal(code, console.Completed)
	is.True(strings.Contains(stdout, "in this chat: bash: touch") &&
		strings.Contains(stdout, "it would have allowed 1 of the last 1 requests in this chat"))
	stored := p.rulesOf(t, chat)
	is.Equal(len(stored), 1)
	is.Equal(stored[0].State, "active")

	p.submit(t, chat, bash("touch two"))
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "done|done")
	requests := rows[projections.Permission](t, p, "permissions", chat)
	is.Equal([]any{requests[1].Status, requests[1].DecidedBy, requests[1].RuleID, requests[1].Referred},
		[]any{events.Authorized, events.ActorPolicy, stored[0].ID, false})
	is.Equal(p.explain(t, requests[1].ID).Decision.RuleID, stored[0].ID)
	text, _, code := p.cli(t, "", "policy", "replay", "bash: touch two", "--chat", chat)
	is.Equal(code, 0)
	expect.Contains(t, text, "bash: touch two would have allowed 1 of the last 2 requests")

	_, _, code = p.cli(t, "", "policy", "revoke", stored[0].ID)
	is.Equal(code, 0)
	p.submit(t, chat, bash("touch three"))
	request := p.awaitRequest(t, chat, len(requests))
	p.awaitReferral(t, chat, request)
	p.decide(t, chat, request, events.Denied, "")
	p.turnEnds(t, chat)
}

func TestRulesAreMadeAndChangedWithCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	chat := p.create(t, "with rules")
	change := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, code := p.cli(t, "", append([]string{"policy"}, args...)...)
		is.Equal([]any{code, stderr}, []any{0, ""})
		expect.Contains(t, stdout, want)
	}
	change("pocketcoder policy delete tool_permissions/", "allow", "bash: touch *", "--chat", chat, "--for", "1h")
	created := p.rulesOf(t, chat)
	is.Equal(len(created), 1)
	is.Equal([]any{created[0].Rule, created[0].State, created[0].Expires != "", created[0].Author},
		[]any{"bash: touch *", "active", true, "operator"})
	change("", "pause", created[0].ID)
	is.Equal(p.rulesOf(t, chat)[0].State, "paused")
	change("", "resume", created[0].ID)
	is.Equal(p.rulesOf(t, chat)[0].State, "active")
	change("pocketcoder policy delete tool_permissions/", "deny", "deny bash: touch *", "--chat", chat)
	now := p.rulesOf(t, chat) // the same rule with another action, without an end
	is.Equal([]any{len(now), now[0].ID, now[0].Rule, now[0].Expires}, []any{1, created[0].ID, "deny bash: touch *", ""})
	stdout, _, code := p.cli(t, "", "policy", "list", "--all")
	is.Equal(code, 0)
	is.True(strings.Contains(stdout, "bash: git status") && strings.Contains(stdout, "built in") &&
		regexp.MustCompile(`(?m)^deny +bash: touch \*`).MatchString(stdout))
	change("", "revoke", created[0].ID)
	is.Equal(len(p.rulesOf(t, chat)), 0)
	_, stderr, code := p.cli(t, "", "policy", "allow", "todowrite: *", "--chat", chat)
	is.Equal([]any{code, stderr}, []any{0, "warning: every todowrite request is allowed from now on without asking\n"})
	_, _, code = p.cli(t, "", "policy", "allow", "bash: x", "--chat", "nothing") // no such chat
	is.Equal(code, 1)
}

// awaitReferral waits until the policy has left a request to a person.
func (p *process) awaitReferral(t testing.TB, chat string, request events.PermissionRequest) {
	t.Helper()
	p.event(t, chat, "permission.referred", func(e events.Event) bool {
		return strings.Contains(string(e.Data), `"`+request.ID+`"`)
	})
}

// ruleEntry is a rule as policy list prints it.
type ruleEntry struct{ ID, Rule, State, Chat, Expires, Author string }

// rulesOf returns the rules that were created for a chat.
func (p *process) rulesOf(t testing.TB, chat string) (rules []ruleEntry) {
	t.Helper()
	stdout, stderr, code := p.cli(t, "", "policy", "list", "--json")
	if code != 0 {
		t.Fatalf("policy list: %d %s", code, stderr)
	}
	decode(t, stdout, &rules)
	return slices.DeleteFunc(rules, func(r ruleEntry) bool { return r.Chat != chat })
}
