package network

import (
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
)

// beginAs is begin for a command with a permission of its own.
func (o *networkFixture) beginAs(exec, permission, command string) *Execution {
	o.T.Helper()
	is := is.New(o.T)
	request := events.ExecRequested{Exec: exec, Permission: permission, Session: "ses_1", Call: "call_" + permission,
		Command: command}
	proxy, err := o.network.For(o.T.Context(), "c1", request)
	is.NoErr(err)
	u, err := url.Parse(proxy)
	is.NoErr(err)
	token, _ := u.User.Password()
	x, ok := o.network.Running(exec, token)
	is.True(ok)
	return x
}

func TestAHostThatACommandNamesIsApprovedWithIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	const command = "curl https://example.org/a"
	handlerstest.Happened(t, o.Log, "c1", handlerstest.Bash("per_2", command),
		handlerstest.Fact{By: events.ActorPolicy, Data: events.PermissionReferred{Permission: "per_2", Cwd: o.Directory,
			Hosts: []string{"example.org:443"}}})
	o.Decide("per_2", events.Authorized)
	_, decided := handlerstest.Await(t, o.Log, func(d events.PermissionDecided) bool { return d.Permission == "per_2" })
	is.Equal(decided.Hosts, []string{"example.org:443"})

	x := o.beginAs("x1", "per_2", command)
	_, err := x.CheckAddress(t.Context(), "example.org:443") // without another request
	is.NoErr(err)
	c := o.connections()[0]
	is.Equal([]any{c.Exec, c.Allowed, c.Permission, c.Reason}, []any{"x1", true, "per_2",
		"approved with the command by " + handlerstest.Alice})
	why, err := permission.Explain(t.Context(), o.Gate, "c1", "per_2")
	is.NoErr(err)
	is.Equal(why.Decision.Hosts, []string{"example.org:443"})
	is.Equal(why.Events[len(why.Events)-1].Type, "exec.connected")

	redirected := o.connect(x, "other.example:443") // a host that it did not name, as after a redirect
	is.Equal(o.hostRequest(1).Patterns, []string{"other.example:443"})
	o.Decide(o.hostRequest(1).Permission, events.Denied)
	is.Equal(handlerstest.Refusal(t, <-redirected), handlers.Conflict)
	port := o.connect(x, "example.org:22")
	o.Decide(o.hostRequest(2).Permission, events.Denied)
	is.Equal(handlerstest.Refusal(t, <-port), handlers.Conflict)
	other := o.connect(o.begin("x2"), "example.org:443") // another command
	o.Decide(o.hostRequest(3).Permission, events.Denied)
	is.Equal(handlerstest.Refusal(t, <-other), handlers.Conflict)
	o.network.Done("x1")
}

func TestADenyRuleBeatsAHostThatWasApprovedWithItsCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks, "deny network: example.org")
	handlerstest.Happened(t, o.Log, "c1", handlerstest.Bash("per_2", "curl https://example.org"),
		handlerstest.Fact{By: handlerstest.Alice, Data: events.PermissionDecided{
			Permission: "per_2", Decision: events.Authorized, Session: "ses_1", Call: "call_per_2", Type: "bash", Command: "curl https://example.org", Hosts: []string{"example.org:443"},
		}})
	_, err := o.beginAs("x1", "per_2", "curl https://example.org").CheckAddress(t.Context(), "example.org:443")
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
}

func TestAnEditedCommandIsApprovedWithTheHostsItNames(t *testing.T) {
	is := is.New(t)
	s := permission.NewState()
	handlerstest.Given(t, s, handlerstest.Bash("per_1", "curl https://example.org"),
		handlerstest.Fact{By: events.ActorPolicy, Data: events.PermissionReferred{Permission: "per_1",
			Hosts: []string{"example.org:443"}}})
	decide := func(c permission.Decide) []string {
		c.Chat, c.Permission = "c1", "per_1"
		d, _, err := s.Decide(c)
		is.NoErr(err)
		return d.(events.PermissionDecided).Hosts
	}
	person := handlers.Command{Actor: handlerstest.Alice}
	is.Equal(decide(permission.Decide{Command: person, Decision: events.Authorized}), []string{"example.org:443"})
	is.Equal(decide(permission.Decide{Command: person, Decision: events.Authorized,
		Edited: "curl https://mirror.example"}), []string{"mirror.example:443"})
	is.Equal(len(decide(permission.Decide{Command: person, Decision: events.Denied})), 0)
	// a rule allows the command alone
	is.Equal(len(decide(permission.Decide{Command: handlers.Command{Actor: events.ActorPolicy},
		Decision: events.Authorized})), 0)
}

func TestARequestForAHostExpiresWithTheLastCommandThatWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	x1, x2 := o.begin("x1"), o.begin("x2")
	o.connect(x1, "example.com:443")
	first := o.hostRequest(1)
	o.connect(x2, "example.com:443")
	for waits := false; !waits; {
		x2.deciding.Lock()
		waits = len(x2.requests) > 0
		x2.deciding.Unlock()
	}
	o.network.End(t.Context(), o.execRequested("x1"))
	_, data := handlerstest.History(t, o.Log, "c1")
	is.Equal(len(handlerstest.Of[events.PermissionExpired](data)), 0) // the other one still waits
	o.network.End(t.Context(), o.execRequested("x2"))
	_, data = handlerstest.History(t, o.Log, "c1")
	is.Equal(handlerstest.Of[events.PermissionExpired](data),
		[]events.PermissionExpired{{Permission: first.Permission, Reason: "the command that needed the host has ended"}})
	_, err := o.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: first.Permission, Decision: events.Authorized})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)

	o.connect(o.begin("x3"), "example.com:443") // the next command asks again
	second := o.hostRequest(2)
	o.start(permission.NetworkAsks) // the process is killed
	is.NoErr(o.network.Expire(t.Context(), "c1"))
	handlerstest.Await(t, o.Log, func(d events.PermissionExpired) bool { return d.Permission == second.Permission })
}

func TestAModelReadsWhyItsCommandReachedNoHost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks, "deny network: denied.example")
	x := o.begin("x1")
	for _, address := range []string{"denied.example:443", "denied.example:443", "10.0.0.1:80", "two words"} {
		_, err := x.CheckAddress(t.Context(), address)
		is.True(err != nil)
	}
	notes := o.network.End(t.Context(), o.execRequested("x1"))
	is.Equal(len(notes), 3) // one for each address
	is.Equal(notes[0], "denied.example:443 was refused: a rule denies it: deny network: denied.example")
	is.True(strings.HasPrefix(notes[1], "10.0.0.1:80 was refused: “10.0.0.1” is not a public host"))

	off := &Sandbox{Gate: permission.Gate{Permissions: o.Permissions, Records: o.Records, Network: permission.NetworkOff},
		Mode: permission.NetworkOff}
	proxy, err := off.For(t.Context(), "c1", events.ExecRequested{Exec: "x2", Command: "curl https://example.org"})
	is.NoErr(err)
	is.Equal(proxy, "")
	is.Equal(off.End(t.Context(), events.ExecRequested{Exec: "x2", Command: "curl https://example.org"}),
		[]string{"The command has no network. Start PocketCoder with --network ask, or add a rule that allows example.org."})
	is.Equal(len(off.End(t.Context(), events.ExecRequested{Exec: "x3", Command: "ls"})), 0)
}

func TestARequestForACommandListsItsHosts(t *testing.T) {
	rules := func(texts ...string) (all []policy.Rule) {
		for _, text := range texts {
			r, err := policy.ParseRule(text)
			is.New(t).NoErr(err)
			all = append(all, r)
		}
		return all
	}
	const none = "The command has no network. Start PocketCoder with --network ask, or add a rule that allows example.org."
	for name, c := range map[string]struct {
		mode    permission.NetworkMode
		rules   []policy.Rule
		command string
		hosts   []string
		network string
	}{
		"asked":                       {permission.NetworkAsks, nil, "curl https://example.org", []string{"example.org:443"}, ""},
		"a rule allows the host":      {permission.NetworkAsks, rules("network: example.org"), "curl https://example.org", nil, ""},
		"a rule denies the host":      {permission.NetworkAsks, rules("deny network: example.org"), "curl https://example.org", nil, ""},
		"a rule asks about the host":  {permission.NetworkOpen, rules("ask network: example.org"), "curl https://example.org", []string{"example.org:443"}, ""},
		"every host is allowed":       {permission.NetworkOpen, nil, "curl https://example.org", nil, ""},
		"another port is asked about": {permission.NetworkOpen, nil, "curl https://example.org:8443", []string{"example.org:8443"}, ""},
		"no network":                  {permission.NetworkOff, nil, "curl https://example.org", nil, none},
		"no network needed":           {permission.NetworkOff, nil, "echo https://example.org", nil, ""},
		"no network but for one host": {permission.NetworkOff, rules("network: other.example"), "curl https://example.org", []string{"example.org:443"}, ""},
		"not in the sandbox":          {"", nil, "curl https://example.org", nil, ""},
		"no host is named":            {permission.NetworkOff, nil, "npm install", nil, strings.Replace(none, "example.org", "its hosts", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			hosts, network := permission.Gate{Network: c.mode}.UndecidedHosts(permission.RuleSets{c.rules}, c.command)
			is.Equal(hosts, c.hosts)
			is.Equal(network, c.network)
		})
	}
}
