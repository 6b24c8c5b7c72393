package egress_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/egress"
	"pocketcoder/events"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
	"pocketcoder/ops/expect"
)

// engine lets OpenCode itself use the proxy, and returns a client with its credentials.
func (w *proxyFixture) engine(models ...string) *http.Client {
	own := &network.Engine{Network: w.Network, Models: models}
	w.Engines = func() []egress.Engine { return []egress.Engine{{Engine: own}} }
	return client(own.Renew())
}

// webfetch has OpenCode ask for a URL.
func (w *proxyFixture) webfetch(permission, url string) {
	w.t.Helper()
	is := is.New(w.t)
	e, err := events.NewOpenCode("c1", "main", "evt_"+permission, -1,
		events.OpenCode{Type: events.PermissionAsked, Properties: fmt.Appendf(nil,
			`{"id":%q,"sessionID":"ses_1","permission":"webfetch","patterns":[%q],"metadata":{"url":%q},"always":["*"],"tool":{"messageID":"m","callID":"c"}}`, permission, url, url)})
	is.NoErr(err)
	_, err = w.log.Append(w.t.Context(), e)
	is.NoErr(err)
}

func TestOpenCodeReachesItsProvidersTheModelThatWasConfiguredAndWhatARuleAllows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	local, other := site(t, false), site(t, false)
	for _, name := range []string{"api.provider.example:80", "www.test.example:80", "other.example:80"} {
		w.Instead(name, host(site(t, false).URL))
	}
	c := w.engine(host(local.URL))
	w.Engines()[0].Allow([]string{"API.provider.example.:80"})
	for url, want := range map[string]int{
		// a rule allows *.test.example
		local.URL: 200, "http://api.provider.example/v1": 200, "http://www.test.example/": 200,
		other.URL: 403, "http://other.example/": 403, "http://api.provider.example:8080/": 403,
	} {
		status, body, err := fetch(t, c, url)
		is.NoErr(err)
		is.Equal(status, want)
		is.Equal(strings.Contains(body, "Blocked by PocketCoder: "), want != 200)
	}
	old := w.engine()
	w.Engines()[0].Renew() // another OpenCode has started
	status, _, err := fetch(t, old, "http://www.test.example/")
	is.NoErr(err)
	is.Equal(status, 407)
}

func TestOpenCodeReachesWhatARuleOfItsProjectAllows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	w.Instead("app.example:80", host(site(t, false).URL))
	_, _, err := w.Network.Gate.Records.Save(t.Context(), record.Save{Collection: rule.ToolPermissions, New: true,
		Set: record.Fields(map[string]any{"tool": "network", "pattern": "app.example", "action": "allow", "project": "app"})})
	is.NoErr(err)
	for project, want := range map[string]int{"app": 200, events.DefaultEngine: 403} {
		own := &network.Engine{Network: w.Network, Project: project}
		w.Engines = func() []egress.Engine { return []egress.Engine{{Engine: own}} }
		status, _, err := fetch(t, client(own.Renew()), "http://app.example/")
		is.NoErr(err)
		is.Equal(status, want)
	}
}

func TestAnApprovedWebfetchCoversItsHostAndNoHostItIsRedirectedTo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	var reached atomic.Int64
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer private.Close()
	redirecting := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, map[string]string{"/private": private.URL, "/elsewhere": "http://elsewhere.example/",
			"/named": "http://127-0-0-1.test.example/"}[r.URL.Path], http.StatusFound)
	}))
	defer redirecting.Close()
	w.Instead("docs.example:80", host(redirecting.URL))
	w.Instead("elsewhere.example:80", host(private.URL))
	c := w.engine()
	w.webfetch("per_1", "http://docs.example/private")
	status, _, err := fetch(t, c, "http://docs.example/private")
	is.NoErr(err)
	is.Equal(status, 403) // no person has approved it yet
	w.decide("per_1", events.Authorized)
	for _, path := range []string{"/private", "/elsewhere", "/named"} {
		status, body, err := fetch(t, c, "http://docs.example"+path)
		is.NoErr(err)
		is.Equal(status, 403)
		expect.Contains(t, body, "Blocked by PocketCoder")
	}
	is.Equal(reached.Load(), int64(0))
	w.webfetch("per_2", "http://refused.example/")
	w.decide("per_2", events.Denied)
	status, _, err = fetch(t, c, "http://refused.example/")
	is.NoErr(err)
	is.Equal(status, 403)
}

// TestTheProxyPutsTheKeysOfProvidersIn sends what OpenCode sends: a placeholder, in plain text, to a server with TLS.
func TestTheProxyPutsTheKeysOfProvidersIn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	got := make(chan http.Header, 1)
	note := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	encrypted, plain := httptest.NewTLSServer(note), httptest.NewServer(note)
	defer encrypted.Close()
	defer plain.Close()
	w.Roots = encrypted.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for _, name := range []string{"api.example.com:443", "eu.example.com:443"} {
		w.Instead(name, host(encrypted.URL))
	}
	w.Instead("other.test.example:80", host(plain.URL)) // a rule allows *.test.example
	c := w.engine(host(plain.URL))
	w.Engines()[0].Allow([]string{"api.example.com:443", "eu.example.com:443"})
	w.Engines()[0].SetCredentials([]network.Credential{
		{Placeholder: "held.example.key", Value: "sk-example", Addresses: []string{"API.example.com:443"}, TLS: true},
		{Placeholder: "held.eu.key", Value: "sk-eu", Addresses: []string{"*.example.com:443"}, TLS: true},
		{Placeholder: "held.own.key", Value: "sk-own", Addresses: []string{host(plain.URL)}},
	})
	for name, c2 := range map[string]struct {
		url, sent, want string
	}{
		"a key":                    {"http://api.example.com:443/v1", "Bearer held.example.key", "Bearer sk-example"},
		"a part of a name":         {"http://eu.example.com:443/v1", "held.eu.key", "sk-eu"},
		"a server of one's own":    {plain.URL, "held.own.key", "sk-own"},
		"another server of theirs": {plain.URL, "held.example.key", "held.example.key"},
		"a host of a rule":         {"http://other.test.example/", "held.eu.key", "held.eu.key"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			r, err := http.NewRequestWithContext(t.Context(), "GET", c2.url, nil)
			is.NoErr(err)
			r.Header.Set("X-Api-Key", c2.sent)
			answer, err := c.Do(r)
			is.NoErr(err)
			answer.Body.Close()
			is.Equal(answer.StatusCode, 200)
			is.Equal((<-got).Get("X-Api-Key"), c2.want)
		})
	}
	// The key of another server is not put in, and without a key nothing is encrypted.
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://eu.example.com:443/v1", nil)
	is.NoErr(err)
	r.Header.Set("X-Api-Key", "held.example.key")
	answer, err := c.Do(r)
	is.NoErr(err)
	answer.Body.Close()
	is.Equal(answer.StatusCode, 400) // plain text, to a port with TLS
}

// ownServer takes a path for the secret.
type ownServer struct{}

func (ownServer) Accepts(r *http.Request) bool { return r.URL.Path == "/mcp" }

func (ownServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, "ours at ", r.URL.Path)
}

// TestOnlyOpenCodeReachesOurOwnServer asks for it as OpenCode, as a command, and without the proxy.
func TestOnlyOpenCodeReachesOurOwnServer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOpen)
	engine, command := w.engine(), client(w.begin("exec1"))
	running := w.Engines()[0]
	running.Own = ownServer{}
	w.Engines = func() []egress.Engine { return []egress.Engine{running} }
	own := "http://" + egress.OwnHost + "/mcp"
	status, body, err := fetch(t, engine, own)
	is.NoErr(err)
	is.Equal([]any{status, body}, []any{200, "ours at /mcp"})
	for name, get := range map[string]func() (int, string, error){
		"a command":            func() (int, string, error) { return fetch(t, command, own) },
		"without the proxy":    func() (int, string, error) { return fetch(t, http.DefaultClient, "http://"+w.address+"/mcp") },
		"OpenCode, other port": func() (int, string, error) { return fetch(t, engine, "http://"+egress.OwnHost+":81/mcp") },
	} {
		status, body, err := get()
		is.NoErr(err)
		if status == 200 || strings.Contains(body, "ours") {
			t.Errorf("%s: got %d %s", name, status, body)
		}
	}
	w.Direct = true
	status, body, err = fetch(t, http.DefaultClient, "http://"+w.address+"/mcp")
	is.NoErr(err)
	is.Equal([]any{status, body}, []any{200, "ours at /mcp"})
	status, _, err = fetch(t, http.DefaultClient, "http://"+w.address+"/other")
	is.NoErr(err)
	is.Equal(status, 401) // no OpenCode has the secret of this request
}
