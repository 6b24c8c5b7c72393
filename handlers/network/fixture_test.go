package network

import (
	"context"
	"encoding/json"
	"net/url"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/policy"
	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

// networkFixture is a Sandbox for the commands of chat c1, with a running gate.
type networkFixture struct {
	*permissiontest.RunningGate
	network *Sandbox
}

func openNetworkFixture(t testing.TB, mode permission.NetworkMode, rules ...string) *networkFixture {
	t.Helper()
	g := permissiontest.OpenGate(t)
	o := &networkFixture{RunningGate: g}
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "npm install"))
	g.Decide("per_1", events.Authorized)
	o.start(mode, rules...)
	return o
}

// start replaces the Sandbox, as a restart of the process does.
func (o *networkFixture) start(mode permission.NetworkMode, rules ...string) {
	o.T.Helper()
	is := is.New(o.T)
	ctx, cancel := context.WithCancel(o.T.Context())
	o.T.Cleanup(cancel)
	tail := log.NewTail(o.Log)
	go tail.Run(ctx)
	gate := o.Gate
	h := permissiontest.New(o.Log)
	gate.Permissions, gate.Records = h.Permissions, h.Records
	for _, text := range rules {
		r, err := policy.ParseRule(text)
		is.NoErr(err)
		gate.Rules = append([]policy.Rule{r}, gate.Rules...)
	}
	o.network = &Sandbox{Gate: gate, Mode: mode, Proxy: "127.0.0.1:3128", Tail: tail}
}

func (o *networkFixture) execRequested(exec string) events.ExecRequested {
	return events.ExecRequested{Exec: exec, Permission: "per_1", Session: "ses_1", Call: "call_per_1",
		Command: "npm install"}
}

// begin attaches the network of a command.
func (o *networkFixture) begin(exec string) *Execution {
	o.T.Helper()
	is := is.New(o.T)
	proxy, err := o.network.For(o.T.Context(), "c1", o.execRequested(exec))
	is.NoErr(err)
	u, err := url.Parse(proxy)
	is.NoErr(err)
	token, _ := u.User.Password()
	x, ok := o.network.Running(u.User.Username(), token)
	is.True(ok)
	return x
}

// connect checks an address in the background.
func (o *networkFixture) connect(x *Execution, address string) <-chan error {
	done := make(chan error, 1)
	go func() { _, err := x.CheckAddress(o.T.Context(), address); done <- err }()
	return done
}

// hostRequest waits until the policy has referred the n-th request for a host to a person.
func (o *networkFixture) hostRequest(n int) (d events.PermissionRequested) {
	o.T.Helper()
	seen := 0
	_, d = handlerstest.Await(o.T, o.Log, func(d events.PermissionRequested) bool { seen++; return seen == n })
	handlerstest.Await(o.T, o.Log, func(r events.PermissionReferred) bool { return r.Permission == d.Permission })
	return d
}

func (o *networkFixture) connections() []events.ExecConnected {
	_, data := handlerstest.History(o.T, o.Log, "c1")
	return handlerstest.Of[events.ExecConnected](data)
}

// saveRule stores a rule without the checks of a command, so that it may be broken.
func (o *networkFixture) saveRule(fields map[string]any) (id string) {
	o.T.Helper()
	body, err := json.Marshal(fields)
	is.New(o.T).NoErr(err)
	id = events.NewID()
	permissiontest.SaveRecord(o.T, permissiontest.New(o.Log), "tool_permissions", id, string(body))
	return id
}
