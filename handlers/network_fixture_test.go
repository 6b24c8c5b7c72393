package handlers

import (
	"context"
	"encoding/json"
	"net/url"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/policy"
)

// outlet is a network for the commands of chat c1, whose gate runs.
type outlet struct {
	*gate
	network *Network
}

func openOutlet(t testing.TB, mode NetworkMode, rules ...string) *outlet {
	t.Helper()
	g := openGate(t)
	o := &outlet{gate: g}
	happened(t, g.Log, "c1", askBash("per_1", "npm install"))
	g.decide("per_1", events.Authorized)
	o.start(mode, rules...)
	return o
}

// start makes the network as a new process would.
func (o *outlet) start(mode NetworkMode, rules ...string) {
	o.t.Helper()
	is := is.New(o.t)
	ctx, cancel := context.WithCancel(o.t.Context())
	o.t.Cleanup(cancel)
	tail := log.NewTail(o.Log)
	go tail.Run(ctx)
	gate := o.Gate
	gate.Handlers = &Handlers{Log: o.Log}
	for _, text := range rules {
		r, err := policy.ParseRule(text)
		is.NoErr(err)
		gate.Rules = append([]policy.Rule{r}, gate.Rules...)
	}
	o.network = &Network{Gate: gate, Mode: mode, Proxy: "127.0.0.1:3128", Tail: tail}
}

func (o *outlet) run(exec string) events.ExecRequested {
	return events.ExecRequested{Exec: exec, Permission: "per_1", Session: "ses_1", Call: "call_per_1", Command: "npm install"}
}

// begin starts a command that has a network.
func (o *outlet) begin(exec string) *Execution {
	o.t.Helper()
	is := is.New(o.t)
	proxy, err := o.network.For(o.t.Context(), "c1", o.run(exec))
	is.NoErr(err)
	u, err := url.Parse(proxy)
	is.NoErr(err)
	token, _ := u.User.Password()
	x, ok := o.network.Running(u.User.Username(), token)
	is.True(ok)
	return x
}

// reaches tries a connection in the background.
func (o *outlet) reaches(x *Execution, address string) <-chan error {
	done := make(chan error, 1)
	go func() { _, err := x.Reach(o.t.Context(), address); done <- err }()
	return done
}

// asked waits for the n-th ask for a host that the policy has left to a person.
func (o *outlet) asked(n int) (d events.PermissionRequested) {
	o.t.Helper()
	seen := 0
	_, d = await(o.t, o.Log, func(d events.PermissionRequested) bool { seen++; return seen == n })
	await(o.t, o.Log, func(r events.PermissionReferred) bool { return r.Permission == d.Permission })
	return d
}

func (o *outlet) connections() []events.ExecConnected {
	_, data := history(o.t, o.Log, "c1")
	return of[events.ExecConnected](data)
}

func (o *outlet) saveRule(fields map[string]any) string {
	o.t.Helper()
	set := map[string]json.RawMessage{}
	for k, v := range fields {
		set[k], _ = json.Marshal(v)
	}
	id, _, err := o.SaveRecord(o.t.Context(), SaveRecord{Command: Command{Actor: alice}, Collection: toolPermissions, Set: set, New: true})
	is.New(o.t).NoErr(err)
	return id
}
