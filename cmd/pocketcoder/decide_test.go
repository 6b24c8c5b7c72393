package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/cmd/console/turn"
	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/dryrun"
	"pocketcoder/handlers/permission/explanation"
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
	is.Equal(code, turn.Completed)
	is.True(strings.Contains(stdout, "-"+request.Command()) && strings.Contains(stdout, "+"+edited)) // the difference is shown
	is.True(strings.Contains(stdout, "│ edited\n") && strings.Contains(stdout, "done"))
	output := p.tools(t, chat)[0].State.Output // what the model sees
	is.True(strings.Contains(output, request.Command()) && strings.Contains(output, edited))
	is.Equal(p.finished(t, chat, 0).Stdout.Text, "edited\n") // and what is recorded is the command's own

	why := p.explain(t, request.ID)
	is.Equal([]string{why.Ask.Command, why.Decision.Edited, why.Decision.Decision, why.Decision.Actor},
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
	is.True(slices.IsSortedFunc(why.Events, func(a, b explanation.WhyEvent) int { return int(a.Seq) - int(b.Seq) }))
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
func (p *process) explain(t testing.TB, id string) (why explanation.Why) {
	t.Helper()
	stdout, stderr, code := p.cli(t, "", "why", id, "--json")
	if code != 0 {
		t.Fatalf("why %s: %d %s", id, code, stderr)
	}
	decode(t, stdout, &why)
	return why
}

func TestEditTakesTheCommandFromTheNextLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, commands("printf one >/dev/null", "printf two >/dev/null"))
	stdout, stderr, code := p.cli(t, "e\n\ne\nprintf three\\\nprintf four\ny\n", "chat", chat) // back, and then two lines
	t.Log(stdout, stderr)
	is.Equal(code, turn.Completed)
	is.Equal(p.finished(t, chat, 0).Stdout.Text, "threefour")
	is.Equal(p.finished(t, chat, 1).Stdout.Text, "")
}

// commands is a script that runs one command after another and says done.
func commands(list ...string) string {
	script := ""
	for _, command := range list {
		script += call("bash", map[string]any{"command": command, "description": "test"}) + "\n@@next\n"
	}
	return script + "@@say done"
}

func TestFirstOfTwoConcurrentDecisionsCounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("printf twice >/dev/null"))
	p.awaitRequest(t, chat, 0)
	admin := p.admin(t)
	request := admin.awaitRequest(t, chat)
	bodies := []record{
		{"status": "authorized"}, {"status": "authorized", "edited": "printf first"}, {"status": "authorized", "edited": "printf second"}, {"status": "denied", "reason": "not so"},
	}
	replies := make([]reply, len(bodies))
	var all sync.WaitGroup
	for i, body := range bodies {
		all.Go(func() {
			replies[i] = admin.do(t, "PATCH", recordPath("permissions", request["id"].(string)), body, "User-Agent",
				fmt.Sprint("device ", i))
		})
	}
	all.Wait()
	won := slices.IndexFunc(replies, func(r reply) bool { return r.code == http.StatusOK })
	for i, r := range replies {
		is.Equal(r.code == http.StatusOK, i == won) // one, and the others are told
	}
	p.turnEnds(t, chat)
	why := p.explain(t, request["ai_engine_permission_id"].(string))
	is.Equal([]any{why.Decision.Decision, why.Decision.Device, why.Decision.Address, why.Decision.By},
		[]any{bodies[won]["status"], fmt.Sprint("device ", won), "127.0.0.1", why.Decision.By})
	if edited, ok := bodies[won]["edited"]; ok {
		is.Equal(why.Executions[0].Command, edited)
	}
}

func TestRuleFromARequestAppliesUntilItIsRevoked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("touch of-a-rule"))
	p.awaitRequest(t, chat, 0)
	stdout, stderr, code := p.cli(t, "a\ny\n", "chat", chat)
	t.Log(stdout, stderr)
	is.Equal(code, turn.Completed)
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
		[]any{projections.PermissionAuthorized, events.ActorPolicy, stored[0].ID, false})
	is.Equal(p.explain(t, requests[1].ID).Decision.RuleID, stored[0].ID)

	other := p.chat(t, bash("touch three")) // it is this chat's alone
	p.decide(t, other, p.awaitRequest(t, other, 0), events.Denied, "")

	for _, step := range []struct {
		verb  string
		asked bool
	}{{"pause", true}, {"resume", false}, {"revoke", true}} {
		_, stderr, code := p.cli(t, "", "policy", step.verb, stored[0].ID)
		is.Equal([]any{code, stderr}, []any{0, ""})
		before := len(rows[projections.Permission](t, p, "permissions", chat))
		p.submit(t, chat, bash("touch three"))
		request := p.awaitRequest(t, chat, before)
		if step.asked {
			p.awaitReferral(t, chat, request)
			p.decide(t, chat, request, events.Denied, "")
		}
		p.turnEnds(t, chat)
		is.Equal(p.explain(t, request.ID).Referred != nil, step.asked) // step.verb
	}
	is.Equal(len(p.rulesOf(t, chat)), 0)
}

// awaitReferral waits until the policy has left a request to a person.
func (p *process) awaitReferral(t testing.TB, chat string, request events.PermissionAsk) {
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

func TestRuleWithADurationExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("touch of-a-second"))
	request := p.awaitRequest(t, chat, 0)
	_, err := handlers.Send(t.Context(), p.Conn, "permission.always",
		permission.AllowAlways{Chat: chat, Permission: request.ID, Scope: permission.ScopeChat, For: "2s"})
	is.NoErr(err)
	p.turnEnds(t, chat)
	stored := p.rulesOf(t, chat)
	until, err := time.Parse(events.TimeFormat, stored[0].Expires)
	is.NoErr(err)
	expect.Eventually(t, "the rule expires", func() bool { return time.Now().After(until) })
	is.Equal(p.rulesOf(t, chat)[0].State, "expired")
	p.submit(t, chat, bash("touch two"))
	second := p.awaitRequest(t, chat, 1)
	p.awaitReferral(t, chat, second)
	p.decide(t, chat, second, events.Denied, "")
	p.turnEnds(t, chat)
}

func TestPolicyReplayCountsMatchingRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, commands("mkdir left", "mkdir right", "mkdir left && rm -rf nowhere"))
	for i := range 3 {
		p.decide(t, chat, p.awaitRequest(t, chat, i), events.Denied, "go on")
	}
	p.turnEnds(t, chat)
	stdout, stderr, code := p.cli(t, "", "policy", "replay", "bash: mkdir*", "--chat", chat, "--json")
	t.Log(stdout, stderr)
	is.Equal(code, 0)
	var run dryrun.Result
	is.NoErr(json.Unmarshal([]byte(stdout), &run))
	is.Equal([]int{run.Asks, run.Allowed, len(run.Commands)}, []int{3, 2, 2})
	text, _, code := p.cli(t, "", "policy", "replay", "bash: mkdir*", "--chat", chat)
	is.Equal(code, 0)
	expect.Contains(t, text, "bash: mkdir* would have allowed 2 of the last 3 requests")
	expect.Contains(t, text, "mkdir right")
	for _, wrong := range [][]string{{"policy", "replay"}, {"policy", "replay", "bash"},
		{"policy", "replay", "bash: mkdir*", "--chat", "a.b"}, {"policy", "pause", "users/x"}, {"why", "a b"},
		{"why", "a", "b"}} {
		_, stderr, code := p.cli(t, "", wrong...)
		is.Equal(code, 2) // wrong
		is.True(stderr != "")
	}
	_, stderr, code = p.cli(t, "", "why", "nosuch")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no permission request nosuch")
}

func TestRulesAreCreatedOnTheCommandLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("touch of-a-third"))
	p.decide(t, chat, p.awaitRequest(t, chat, 0), events.Denied, "")
	p.turnEnds(t, chat)
	create := func(args ...string) {
		stdout, stderr, code := p.cli(t, "", append([]string{"policy"}, args...)...)
		is.Equal([]any{code, stderr}, []any{0, ""})
		expect.Contains(t, stdout, "pocketcoder policy revoke tool_permissions/") // how to undo it
	}

	create("allow", "bash: touch *", "--chat", chat, "--for", "1h")
	stored := p.rulesOf(t, chat)
	is.Equal(len(stored), 1)
	is.Equal([]any{stored[0].Rule, stored[0].State, stored[0].Expires != ""}, []any{"bash: touch *", "active", true})
	p.submit(t, chat, bash("touch two"))
	p.turnEnds(t, chat)
	requests := rows[projections.Permission](t, p, "permissions", chat)
	is.Equal([]any{requests[1].Status, requests[1].RuleID}, []any{projections.PermissionAuthorized, stored[0].ID})

	create("deny", "deny bash: touch *", "--chat", chat) // the same rule with another action, without an end
	now := p.rulesOf(t, chat)
	is.Equal([]any{len(now), now[0].ID, now[0].Rule, now[0].Expires}, []any{1, stored[0].ID, "deny bash: touch *", ""})
	p.submit(t, chat, bash("touch three"))
	p.turnEnds(t, chat)
	requests = rows[projections.Permission](t, p, "permissions", chat)
	is.Equal(requests[2].Status, projections.PermissionDenied)

	stdout, _, code := p.cli(t, "", "policy", "list", "--all")
	is.Equal(code, 0)
	is.True(strings.Contains(stdout, "bash: git status*") && strings.Contains(stdout, "built in") &&
		regexp.MustCompile(`(?m)^deny +bash: touch \*`).MatchString(stdout))
	// made at the command line
	is.True(slices.ContainsFunc(p.rulesOf(t, chat), func(r ruleEntry) bool { return r.Author == "operator" }))
	stdout, _, _ = p.cli(t, "", "policy", "list")
	expect.Lacks(t, stdout, "built in")
	// no such chat
	is.Equal(func() int { _, _, code := p.cli(t, "", "policy", "allow", "bash: x", "--chat", "nothing"); return code }(),
		1)

	_, stderr, code := p.cli(t, "", "policy", "allow", "todowrite: *", "--chat", chat)
	is.Equal([]any{code, stderr}, []any{0, "warning: every todowrite request is allowed from now on without asking\n"})
}
