package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

func TestACommandHasANetworkOnlyWhereTheFlagOrARuleGivesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  permission.NetworkMode
		rules []string
		rule  map[string]any
		want  bool
	}{
		"off":                        {mode: permission.NetworkOff},
		"ask":                        {mode: permission.NetworkAsks, want: true},
		"allow":                      {mode: permission.NetworkOpen, want: true},
		"a rule of the start":        {mode: permission.NetworkOff, rules: []string{"network: example.com"}, want: true},
		"a rule for something else":  {mode: permission.NetworkOff, rules: []string{"webfetch: https://example.com/*"}},
		"a rule that denies":         {mode: permission.NetworkOff, rules: []string{"deny network: example.com"}},
		"a rule that asks":           {mode: permission.NetworkOff, rules: []string{"ask network: *"}},
		"a kept rule":                {mode: permission.NetworkOff, rule: map[string]any{}, want: true},
		"one for this chat":          {mode: permission.NetworkOff, rule: map[string]any{"chat": "c1"}, want: true},
		"one for another chat":       {mode: permission.NetworkOff, rule: map[string]any{"chat": "c2"}},
		"one for this agent":         {mode: permission.NetworkOff, rule: map[string]any{"agent": "a1"}, want: true},
		"one for another agent":      {mode: permission.NetworkOff, rule: map[string]any{"agent": "a2"}},
		"one that has expired":       {mode: permission.NetworkOff, rule: map[string]any{"expires_at": "2020-01-01 00:00:00.000Z"}},
		"one that is paused":         {mode: permission.NetworkOff, rule: map[string]any{"active": false}},
		"one that is broken":         {mode: permission.NetworkOff, rule: map[string]any{"pattern": "*"}},
		"an empty pattern":           {mode: permission.NetworkOff, rule: map[string]any{"pattern": ""}},
		"one for a host in our hall": {mode: permission.NetworkOff, rule: map[string]any{"pattern": "localhost"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			o := openNetworkFixture(t, c.mode, c.rules...)
			if c.rule != nil {
				for id, agent := range map[string]string{"a1": "build", "a2": "plan"} {
					_, _, err := o.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
						Collection: "ai_agents", Record: id, New: true,
						Set: map[string]json.RawMessage{"name": []byte(`"` + agent + `"`)}})
					is.NoErr(err)
				}
				fields := map[string]any{"tool": "network", "pattern": "example.com", "action": "allow", "active": true}
				for k, v := range c.rule {
					fields[k] = v
				}
				o.saveRule(fields)
			}
			proxy, err := o.network.For(t.Context(), "c1", o.execRequested("x1"))
			is.NoErr(err)
			is.Equal(proxy != "", c.want)
			if c.want {
				is.True(strings.HasPrefix(proxy, "http://x1:"))
				is.True(strings.HasSuffix(proxy, "@127.0.0.1:3128"))
			}
			o.network.Done("x1")
		})
	}
}

func TestAWhitelistWithoutTargetsGivesNoNetwork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkOff)
	save := func(collection string, fields map[string]json.RawMessage) {
		_, _, err := o.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
			Collection: collection, New: true, Set: fields})
		is.NoErr(err)
	}
	save("whitelist_actions", map[string]json.RawMessage{"permission": []byte(`"network"`), "kind": []byte(`"strict"`),
		"value": []byte(`""`), "active": []byte("true")})
	proxy, err := o.network.For(t.Context(), "c1", o.execRequested("x1"))
	is.NoErr(err)
	is.Equal(proxy, "")
	save("whitelist_targets", map[string]json.RawMessage{"name": []byte(`"t"`), "pattern": []byte(`"*.example.com"`),
		"active": []byte("true")})
	_, err = o.begin("x1").CheckAddress(t.Context(), "a.example.com:443")
	is.NoErr(err)
}

func TestANilSandboxAllowsNoNetwork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var none *Sandbox
	proxy, err := none.For(t.Context(), "c1", events.ExecRequested{})
	is.NoErr(err)
	is.Equal(proxy, "")
	none.Done("x1")
}

func TestRulesAndTheModeDecideWithoutAPerson(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode           permission.NetworkMode
		rules, address string
		allowed        bool
		want           string
	}{
		{permission.NetworkAsks, "network: *.example.com", "A.Example.com.:443", true, "a rule allows it: network: *.example.com"},
		{permission.NetworkOpen, "", "example.com:443", true, "--network allow"},
		{permission.NetworkOpen, "", "example.com:80", true, "--network allow"},
		{permission.NetworkOpen, "deny network: example.com", "example.com:443", false, "a rule denies it: deny network: example.com"},
		{permission.NetworkOpen, "", "169.254.169.254:80", false, "not a public host"},
		{permission.NetworkOpen, "", "0x7f000001:80", false, "not a public host"},
		{permission.NetworkOpen, "", "LOCALHOST.:80", false, "not a public host"},
		{permission.NetworkOpen, "", "evil.com\x00.google.com:443", false, "U+0000"},
	} {
		t.Run(fmt.Sprint(c.mode, " ", c.rules, " ", c.address), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			var rules []string
			if c.rules != "" {
				rules = []string{c.rules}
			}
			o := openNetworkFixture(t, c.mode, rules...)
			x := o.begin("x1")
			for range 3 {
				_, err := x.CheckAddress(t.Context(), c.address)
				is.Equal(err == nil, c.allowed)
				if err != nil {
					is.True(handlerstest.Refusal(t, err) != "")
					expect.Contains(t, err.Error(), c.want)
				}
			}
			all := o.connections()
			is.Equal(len(all), 1) // recorded once
			is.Equal(all[0].Exec, "x1")
			is.Equal(all[0].Allowed, c.allowed)
			expect.Contains(t, all[0].Reason, c.want)
		})
	}
}

func TestAddressesAreNormalized(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks, "network: example.com")
	at, err := o.begin("x1").CheckAddress(t.Context(), "EXAMPLE.com.:80")
	is.NoErr(err)
	is.Equal(at, policy.Address{Host: "example.com", Port: 80})
}

func TestCredentialsAreValidForOneRunningCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkOpen)
	x1, x2 := o.begin("x1"), o.begin("x2")
	for _, c := range [][2]string{{"x1", x2.token}, {"x1", ""}, {"", x1.token}, {"x3", x1.token}, {"x1", x1.token + "A"},
		{"x1", x1.token[1:]}} {
		_, ok := o.network.Running(c[0], c[1])
		is.True(!ok)
	}
	ctx, end, ok := x1.Begin(t.Context())
	is.True(ok)
	defer end()
	o.network.Done("x1")
	<-ctx.Done() // the connection ends with the command
	_, ok = o.network.Running("x1", x1.token)
	is.True(!ok)
	_, _, ok = x1.Begin(t.Context())
	is.True(!ok)
	_, ok = o.network.Running("x2", x2.token)
	is.True(ok)
	o.network.Done("x1")
}

func TestCredentialsAreNeverInTheLog(t *testing.T) {
	t.Parallel()
	o := openNetworkFixture(t, permission.NetworkOpen)
	x := o.begin("x1")
	printToken := func() {
		title := "HTTP_PROXY=http://x1:" + x.token + "@127.0.0.1:3128"
		handlerstest.Happened(t, o.Log, "c1", handlerstest.Fact{Data: events.ChatUpdated{Title: &title}})
	}
	printToken()
	o.network.Done("x1")
	printToken() // output may arrive after the end of the command
	all, _ := handlerstest.History(t, o.Log, "c1")
	for _, e := range all {
		expect.Lacks(t, string(e.Data), x.token)
	}
}

func TestTokensOfRunningCommandsAreConcealedFirst(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkOpen)
	others := make([]string, secret.System.Budget()-3) // there is room for three
	for i := range others {
		others[i] = fmt.Sprintf("secret-number-%d-", i)
	}
	is.Equal(o.Log.Conceal(secret.System, "others", others...), 0)
	concealed := func(x *Execution) bool {
		return !strings.Contains(string(o.Log.Redactor().Bytes([]byte(x.token))), x.token)
	}
	x1, x2 := o.begin("x1"), o.begin("x2")
	o.network.Done("x1")
	o.network.Done("x2")
	x3 := o.begin("x3")
	is.True(concealed(x1) && concealed(x2) && concealed(x3))
	x4 := o.begin("x4")
	is.True(!concealed(x1) && concealed(x2) && concealed(x3) && concealed(x4)) // the token that ended first is dropped
	x5 := o.begin("x5")
	for range 10 { // map order is random
		_, err := o.network.For(t.Context(), "c1", o.execRequested("x6"))
		is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
		is.True(concealed(x3) && concealed(x4) && concealed(x5))
	}
	_, ok := o.network.Running("x6", "")
	is.True(!ok)
	o.network.Done("x3")
	is.True(concealed(x4) && concealed(x5))
	is.True(concealed(o.begin("x6")) && !concealed(x3))
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkOpen)
	x := o.begin("x1")
	var ends []func()
	for range MaxConnections {
		_, end, ok := x.Begin(t.Context())
		is.True(ok)
		ends = append(ends, end)
	}
	_, _, ok := x.Begin(t.Context())
	is.True(!ok)
	ends[7]()
	_, _, ok = x.Begin(t.Context())
	is.True(ok)
}

func TestHostsOfACommandAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkOpen)
	x := o.begin("x1")
	for i := range maxHosts {
		x.hosts[fmt.Sprintf("h%d.example.com:443", i)] = true
	}
	for range 2 {
		_, err := x.CheckAddress(t.Context(), "another.example.com:443")
		is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	}
	_, err := x.CheckAddress(t.Context(), "h7.example.com:443")
	is.NoErr(err)
	_, err = x.CheckAddress(t.Context(), "localhost:443")
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	is.Equal([]int{len(x.hosts), len(o.connections())}, []int{maxHosts, 3})

	for i := range 2 * maxHosts {
		x.recorded[recordedConnection{address: fmt.Sprintf("localhost:%d", 1000+i)}] = true
	}
	n := len(x.recorded)
	_, err = x.CheckAddress(t.Context(), "localhost:80")
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	_, err = x.CheckAddress(t.Context(), "not a host:80")
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	is.Equal([]int{len(x.recorded), len(o.connections())}, []int{n, 3}) // no more refusals are recorded
	_, err = x.CheckAddress(t.Context(), "h8.example.com:443")
	is.NoErr(err)
	is.Equal(len(o.connections()), 4)
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	o := openNetworkFixture(t, permission.NetworkAsks)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := o.begin("x1").CheckAddress(ctx, "example.com:443")
	is.True(errors.Is(err, ErrWaiting))
	cancelled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	_, err = o.begin("x2").CheckAddress(cancelled, "example.com:443")
	is.True(errors.Is(err, context.Canceled))
}
