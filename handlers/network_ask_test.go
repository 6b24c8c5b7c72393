package handlers

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/policy"
)

func TestAPersonIsAskedOnceForAllThatWait(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	x1, x2 := o.begin("x1"), o.begin("x2")
	var waiting []<-chan error
	for range 3 {
		waiting = append(waiting, o.reaches(x1, "example.com:443"), o.reaches(x2, "EXAMPLE.com.:443"))
	}
	ask := o.asked(1)
	is.Equal(ask.Type, NetworkAsk)
	is.Equal(ask.Patterns, []string{"example.com:443"})
	is.Equal([]string{ask.Session, ask.MessageID, ask.Call}, []string{"ses_1", "msg_1", "call_per_1"})
	var about networkMetadata
	is.NoErr(json.Unmarshal(ask.Metadata, &about))
	is.True(about.Exec == "x1" || about.Exec == "x2")
	is.Equal([]any{about.Host, about.Port, about.Command}, []any{"example.com", uint16(443), "npm install"})
	for _, x := range []*Execution{x1, x2} { // both have asked before anybody decides
		for waits := false; !waits; {
			x.deciding.Lock()
			waits = len(x.asks) > 0
			x.deciding.Unlock()
		}
	}
	o.decide(ask.Permission, events.Authorized)
	for _, w := range waiting {
		is.NoErr(<-w)
	}
	all := o.connections()
	is.Equal(len(all), 2) // one for each command
	for _, c := range all {
		is.Equal([]any{c.Host, c.Port, c.Allowed, c.Permission, c.Reason}, []any{"example.com", 443, true, ask.Permission, "approved by " + alice})
	}
	_, data := history(t, o.Log, "c1")
	is.Equal(len(of[events.PermissionRequested](data)), 1)

	_, err := x1.Reach(t.Context(), "example.com:443") // again, for as long as it runs
	is.NoErr(err)
	again := o.reaches(x1, "example.com:22") // another port is another ask
	other := o.reaches(o.begin("x3"), "example.com:443")
	is.True(o.asked(2).Permission != o.asked(3).Permission) // and so is another command: what was approved is used up
	for i := 2; i <= 3; i++ {
		o.decide(o.asked(i).Permission, events.Denied)
	}
	is.Equal(refusal(t, <-again), Conflict)
	is.Equal(refusal(t, <-other), Conflict)
}

func TestADenialHoldsForTheCommandThatWaited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	x1 := o.begin("x1")
	waiting := o.reaches(x1, "example.com:443")
	ask := o.asked(1)
	_, err := o.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: ask.Permission, Decision: events.Denied, Reason: "use the mirror"})
	is.NoErr(err)
	is.Equal((<-waiting).Error(), "denied by user:alice: use the mirror")
	_, err = x1.Reach(t.Context(), "example.com:443")
	is.Equal(refusal(t, err), Conflict) // at once
	is.Equal(len(o.connections()), 1)
	is.Equal(o.connections()[0].Permission, ask.Permission)
	next := o.reaches(o.begin("x2"), "example.com:443")
	o.decide(o.asked(2).Permission, events.Authorized)
	is.NoErr(<-next)
}

func TestARestartKeepsTheAskAndItsApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	o.network.Tail = log.NewTail(o.Log) // it never hears of the decision: its process is killed
	o.reaches(o.begin("x1"), "example.com:443")
	ask := o.asked(1)
	o.start(NetworkAsks)
	waiting := o.reaches(o.begin("x2"), "example.com:443")
	o.decide(ask.Permission, events.Authorized)
	is.NoErr(<-waiting)
	_, data := history(t, o.Log, "c1")
	is.Equal(len(of[events.PermissionRequested](data)), 1)

	o.reaches(o.begin("x3"), "example.com:443") // used up
	late := o.asked(2)
	o.network.Done("x3")
	o.decide(late.Permission, events.Authorized)
	o.start(NetworkAsks)
	_, err := o.begin("x4").Reach(t.Context(), "example.com:443") // approved when nobody waited
	is.NoErr(err)
}

func TestNothingButAPersonOrARuleAllowsAHost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	forged := intends("i1", "x")
	forged.Type, forged.Patterns = NetworkAsk, []string{"example.com:443"}
	_, _, err := o.RequestPermission(t.Context(), forged)
	is.Equal(refusal(t, err), Invalid)
	request := forged.event()
	request.Permission = "i2"
	for _, ask := range []fact{
		{by: alice, data: request}, // an old log may hold one
		asks("per_9", "ses_1", "call_per_1", NetworkAsk, []string{"example.com:443"}, map[string]string{"host": "example.com"}),
	} {
		happened(t, o.Log, "c1", ask)
	}
	o.decide("i2", events.Authorized)
	o.decide("per_9", events.Authorized)
	waiting := o.reaches(o.begin("x1"), "example.com:443")
	_, ask := await(t, o.Log, func(d events.PermissionRequested) bool { return d.Permission != "i2" })
	o.decide(ask.Permission, events.Denied)
	is.Equal(refusal(t, <-waiting), Conflict)
}

func TestAnApprovalThatExpiredAllowsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	at, expires := policy.Address{Host: "example.com", Port: 443}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := newNetworkState()
	given(t, s,
		fact{by: events.ActorPolicy, data: events.PermissionRequested{Permission: "p1", Type: NetworkAsk, Patterns: []string{at.String()}}},
		fact{by: alice, data: events.PermissionDecided{Permission: "p1", Type: NetworkAsk, Decision: events.Authorized, Expires: expires}})
	waited := &Execution{asks: map[policy.Address]string{at: "p1"}}
	for name, x := range map[string]*Execution{"it waited": waited, "the next one": {}} {
		before, after := s.byPerson(x, at, expires.Add(-1)), s.byPerson(x, at, expires)
		is.Equal(before, passage{allowed: true, permission: "p1", reason: "approved by " + alice}) // for each
		if !after.asks || !after.waits || after.allowed || after.permission == "p1" {
			t.Errorf("%s: %+v", name, after) // a new ask
		}
	}
}

func TestAnApprovalBeforeAnAbortAllowsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	x := o.begin("x1")
	for n := range 2 {
		waiting := o.reaches(x, "example.com:443")
		o.decide(o.asked(n+1).Permission, events.Authorized)
		is.NoErr(<-waiting)
		happened(t, o.Log, "c1", fact{by: alice, data: events.AbortRequested{Session: "ses_1"}})
	}
}

func TestARuleThatComesWhileAConnectionWaitsDecidesIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	x := o.begin("x1")
	waiting := o.reaches(x, "example.com:443")
	ask := o.asked(1)
	rules, _, err := o.Gate.AllowAlways(t.Context(), AlwaysPermission{Command: Command{Actor: alice}, Chat: "c1", Permission: ask.Permission, Scope: ScopeAgent})
	is.Equal(refusal(t, err), Invalid) // no agent of that name is kept
	is.Equal(len(rules), 0)
	_, _, err = o.Gate.AllowAlways(t.Context(), AlwaysPermission{Command: Command{Actor: alice}, Chat: "c1", Permission: ask.Permission, Scope: ScopeChat})
	is.NoErr(err)
	is.NoErr(<-waiting)
	is.Equal(o.connections()[0].Reason, "a rule allows it: network: example.com")

	waiting = o.reaches(x, "other.com:443")
	o.asked(2)
	o.saveRule(map[string]any{"tool": "network", "pattern": "*.other.com", "action": "allow", "active": true})
	id := o.saveRule(map[string]any{"tool": "network", "pattern": "other.com", "action": "allow", "active": true})
	is.NoErr(<-waiting)
	_, err = o.DeleteRecord(t.Context(), DeleteRecord{Command: Command{Actor: alice}, Collection: toolPermissions, Record: id})
	is.NoErr(err)
	o.reaches(x, "other.com:443") // the rule is gone, and nobody has approved it
	o.asked(3)
}

func TestARuleThatWantsAPersonBeatsTheFlag(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkOpen, "ask network: *.example.com")
	x := o.begin("x1")
	_, err := x.Reach(t.Context(), "example.org:443")
	is.NoErr(err)
	for i, address := range []string{"a.example.com:443", "example.org:22"} { // nor does the flag reach beyond the web
		waiting := o.reaches(x, address)
		o.decide(o.asked(i+1).Permission, events.Authorized)
		is.NoErr(<-waiting)
	}
}

func TestARuleForAnotherAgentSaysNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	_, _, err := o.SaveRecord(t.Context(), SaveRecord{Command: Command{Actor: alice}, Collection: aiAgents, Record: "a2", New: true, Set: map[string]json.RawMessage{"name": []byte(`"plan"`)}})
	is.NoErr(err)
	o.saveRule(map[string]any{"tool": "network", "pattern": "*", "action": "deny", "active": true, "agent": "a2"})
	waiting := o.reaches(o.begin("x1"), "example.com:443") // the agent is build
	o.decide(o.asked(1).Permission, events.Authorized)
	is.NoErr(<-waiting)
}

func TestOnlySoManyHostsWaitForAPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	x := o.begin("x1")
	for i := range maxOpenAsks {
		o.reaches(x, fmt.Sprintf("h%d.example.com:443", i))
		o.asked(i + 1)
	}
	_, err := x.Reach(t.Context(), "h99.example.com:443")
	is.Equal(refusal(t, err), Conflict)
	o.decide(o.asked(3).Permission, events.Denied)
	o.reaches(x, "h99.example.com:443")
	o.asked(maxOpenAsks + 1)
}

func TestWhyShowsTheConnection(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openOutlet(t, NetworkAsks)
	waiting := o.reaches(o.begin("x1"), "example.com:443")
	ask := o.asked(1)
	o.decide(ask.Permission, events.Authorized)
	is.NoErr(<-waiting)
	w, err := o.Gate.Why(t.Context(), "c1", ask.Permission)
	is.NoErr(err)
	is.Equal(w.Ask.Agent, "build")
	is.Equal(w.Decision.Actor, alice)
	is.Equal(w.Events[len(w.Events)-1].Type, "exec.connected")
	run, err := o.Gate.ProposeAlways(t.Context(), AlwaysPermission{Chat: "c1", Permission: ask.Permission, Scope: ScopeChat})
	is.NoErr(err)
	is.Equal(run.Rules[0].String(), "network: example.com")
	is.Equal(run.Chat.Allowed, 1)
}
