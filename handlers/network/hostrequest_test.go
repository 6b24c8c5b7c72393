package network

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

func TestConnectionsToOneHostShareARequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	x1, x2 := o.begin("x1"), o.begin("x2")
	var waiting []<-chan error
	for range 3 {
		waiting = append(waiting, o.connect(x1, "example.com:443"), o.connect(x2, "EXAMPLE.com.:443"))
	}
	request := o.hostRequest(1)
	is.Equal(request.Type, events.KindNetwork)
	is.Equal(request.Patterns, []string{"example.com:443"})
	is.Equal([]string{request.Session, request.MessageID, request.Call}, []string{"ses_1", "msg_1", "call_per_1"})
	var metadata networkMetadata
	is.NoErr(json.Unmarshal(request.Metadata, &metadata))
	is.True(metadata.Exec == "x1" || metadata.Exec == "x2")
	is.Equal([]any{metadata.Host, metadata.Port, metadata.Command}, []any{"example.com", uint16(443), "npm install"})
	for _, x := range []*Execution{x1, x2} { // both wait before a person decides
		for waits := false; !waits; {
			x.deciding.Lock()
			waits = len(x.requests) > 0
			x.deciding.Unlock()
		}
	}
	o.Decide(request.Permission, events.Authorized)
	for _, w := range waiting {
		is.NoErr(<-w)
	}
	all := o.connections()
	is.Equal(len(all), 2) // one for each command
	for _, c := range all {
		is.Equal([]any{c.Host, c.Port, c.Allowed, c.Permission, c.Reason},
			[]any{"example.com", 443, true, request.Permission, "approved by " + handlerstest.Alice})
	}
	_, data := handlerstest.History(t, o.Log, "c1")
	is.Equal(len(handlerstest.Of[events.PermissionRequested](data)), 1)

	_, err := x1.CheckAddress(t.Context(), "example.com:443") // the approval is valid while the command runs
	is.NoErr(err)
	otherPort := o.connect(x1, "example.com:22")
	otherCommand := o.connect(o.begin("x3"), "example.com:443")
	is.True(o.hostRequest(2).Permission != o.hostRequest(3).Permission)
	for i := 2; i <= 3; i++ {
		o.Decide(o.hostRequest(i).Permission, events.Denied)
	}
	is.Equal(handlerstest.Refusal(t, <-otherPort), handlers.Conflict)
	is.Equal(handlerstest.Refusal(t, <-otherCommand), handlers.Conflict)
}

func TestADenialHoldsForTheCommandThatWaited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	x1 := o.begin("x1")
	waiting := o.connect(x1, "example.com:443")
	request := o.hostRequest(1)
	_, err := o.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: request.Permission, Decision: events.Denied, Reason: "use the mirror"})
	is.NoErr(err)
	is.Equal((<-waiting).Error(), "denied by user:alice: use the mirror")
	_, err = x1.CheckAddress(t.Context(), "example.com:443")
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict) // at once
	is.Equal(len(o.connections()), 1)
	is.Equal(o.connections()[0].Permission, request.Permission)
	next := o.connect(o.begin("x2"), "example.com:443")
	o.Decide(o.hostRequest(2).Permission, events.Authorized)
	is.NoErr(<-next)
}

func TestARestartKeepsTheRequestAndItsApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	o.network.Tail = log.NewTail(o.Log) // does not run, as after a kill of the process
	o.connect(o.begin("x1"), "example.com:443")
	request := o.hostRequest(1)
	o.start(permission.NetworkAsks)
	waiting := o.connect(o.begin("x2"), "example.com:443")
	o.Decide(request.Permission, events.Authorized)
	is.NoErr(<-waiting)
	_, data := handlerstest.History(t, o.Log, "c1")
	is.Equal(len(handlerstest.Of[events.PermissionRequested](data)), 1)

	o.connect(o.begin("x3"), "example.com:443") // used up
	late := o.hostRequest(2)
	o.network.Done("x3")
	o.Decide(late.Permission, events.Authorized)
	o.start(permission.NetworkAsks)
	_, err := o.begin("x4").CheckAddress(t.Context(), "example.com:443") // approved while no command waited
	is.NoErr(err)
}

func TestNothingButAPersonOrARuleAllowsAHost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	forged := permissiontest.SubmitBash("i1", "x")
	forged.Type, forged.Patterns = events.KindNetwork, []string{"example.com:443"}
	_, _, err := o.Permissions.Submit(t.Context(), forged)
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	request := handlerstest.Requested("i2", "x")
	request.Type, request.Patterns = events.KindNetwork, forged.Patterns
	for _, fact := range []handlerstest.Fact{
		{By: handlerstest.Alice, Data: request}, // an old log may hold one
		handlerstest.Permission("per_9", "ses_1", "call_per_1", events.KindNetwork, []string{"example.com:443"},
			map[string]string{"host": "example.com"}),
	} {
		handlerstest.Happened(t, o.Log, "c1", fact)
	}
	o.Decide("i2", events.Authorized)
	o.Decide("per_9", events.Authorized)
	waiting := o.connect(o.begin("x1"), "example.com:443")
	_, direct := handlerstest.Await(t, o.Log, func(d events.PermissionRequested) bool { return d.Permission != "i2" })
	o.Decide(direct.Permission, events.Denied)
	is.Equal(handlerstest.Refusal(t, <-waiting), handlers.Conflict)
}

func TestAnApprovalThatExpiredAllowsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	at, expires := policy.Address{Host: "example.com", Port: 443}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := permission.NewState()
	handlerstest.Given(t, s,
		handlerstest.Fact{By: events.ActorPolicy, Data: events.PermissionRequested{Permission: "p1",
			Type: events.KindNetwork, Patterns: []string{at.String()}}},
		handlerstest.Fact{By: handlerstest.Alice, Data: events.PermissionDecided{Permission: "p1",
			Type: events.KindNetwork, Decision: events.Authorized, Expires: expires}})
	waited := &Execution{requests: map[policy.Address]string{at: "p1"}}
	for name, x := range map[string]*Execution{"it waited": waited, "the next one": {}} {
		before, after := x.decideByPerson(s, at, expires.Add(-1)), x.decideByPerson(s, at, expires)
		// for each
		is.Equal(before, connectDecision{allowed: true, permission: "p1", reason: "approved by " + handlerstest.Alice})
		if !after.isNew || !after.waits || after.allowed || after.permission == "p1" {
			t.Errorf("%s: %+v", name, after) // a new request
		}
	}
}

func TestAnApprovalBeforeAnAbortAllowsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	x := o.begin("x1")
	for n := range 2 {
		waiting := o.connect(x, "example.com:443")
		o.Decide(o.hostRequest(n+1).Permission, events.Authorized)
		is.NoErr(<-waiting)
		handlerstest.Happened(t, o.Log, "c1", handlerstest.Fact{By: handlerstest.Alice,
			Data: events.AbortRequested{Session: "ses_1"}})
	}
}

func TestARuleThatComesWhileAConnectionWaitsDecidesIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	x := o.begin("x1")
	waiting := o.connect(x, "example.com:443")
	request := o.hostRequest(1)
	rules, _, err := o.Gate.AllowAlways(t.Context(),
		permission.AllowAlways{Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1",
			Permission: request.Permission, Scope: permission.ScopeAgent})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid) // no agent of that name is stored
	is.Equal(len(rules), 0)
	_, _, err = o.Gate.AllowAlways(t.Context(), permission.AllowAlways{
		Command: handlers.Command{Actor: handlerstest.Alice},
		Chat:    "c1", Permission: request.Permission, Scope: permission.ScopeChat})
	is.NoErr(err)
	is.NoErr(<-waiting)
	is.Equal(o.connections()[0].Reason, "a rule allows it: network: example.com")

	waiting = o.connect(x, "other.com:443")
	o.hostRequest(2)
	o.saveRule(map[string]any{"tool": "network", "pattern": "*.other.com", "action": "allow", "active": true})
	id := o.saveRule(map[string]any{"tool": "network", "pattern": "other.com", "action": "allow", "active": true})
	is.NoErr(<-waiting)
	_, err = o.Records.Delete(t.Context(), record.Delete{Command: handlers.Command{Actor: handlerstest.Alice},
		Collection: "tool_permissions", Record: id})
	is.NoErr(err)
	o.connect(x, "other.com:443") // the rule is deleted, and no person has approved the host
	o.hostRequest(3)
}

func TestAnAskRuleOverridesTheMode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkOpen, "ask network: *.example.com")
	x := o.begin("x1")
	_, err := x.CheckAddress(t.Context(), "example.org:443")
	is.NoErr(err)
	for i, address := range []string{"a.example.com:443", "example.org:22"} { // NetworkOpen allows ports 80 and 443 only
		waiting := o.connect(x, address)
		o.Decide(o.hostRequest(i+1).Permission, events.Authorized)
		is.NoErr(<-waiting)
	}
}

func TestARuleForAnotherAgentDoesNotApply(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	_, _, err := o.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
		Collection: "ai_agents", Record: "a2", New: true, Set: map[string]json.RawMessage{"name": []byte(`"plan"`)}})
	is.NoErr(err)
	o.saveRule(map[string]any{"tool": "network", "pattern": "*", "action": "deny", "active": true, "agent": "a2"})
	waiting := o.connect(o.begin("x1"), "example.com:443") // the agent is build
	o.Decide(o.hostRequest(1).Permission, events.Authorized)
	is.NoErr(<-waiting)
}

func TestPendingHostsAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	x := o.begin("x1")
	for i := range maxOpenRequests {
		o.connect(x, fmt.Sprintf("h%d.example.com:443", i))
		o.hostRequest(i + 1)
	}
	_, err := x.CheckAddress(t.Context(), "h99.example.com:443")
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	o.Decide(o.hostRequest(3).Permission, events.Denied)
	o.connect(x, "h99.example.com:443")
	o.hostRequest(maxOpenRequests + 1)
}

func TestWhyShowsTheConnection(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	waiting := o.connect(o.begin("x1"), "example.com:443")
	request := o.hostRequest(1)
	o.Decide(request.Permission, events.Authorized)
	is.NoErr(<-waiting)
	w, err := permission.Explain(t.Context(), o.Gate, "c1", request.Permission)
	is.NoErr(err)
	is.Equal(w.Request.Agent, "build")
	is.Equal(w.Decision.Actor, handlerstest.Alice)
	is.Equal(w.Events[len(w.Events)-1].Type, "exec.connected")
	run, err := o.Gate.ProposeAlways(t.Context(), permission.AllowAlways{Chat: "c1", Permission: request.Permission,
		Scope: permission.ScopeChat})
	is.NoErr(err)
	is.Equal(run.Rules[0].String(), "network: example.com")
	is.Equal(run.Chat.Allowed, 1)
}
