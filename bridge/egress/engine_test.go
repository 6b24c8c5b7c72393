package egress_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
)

// engine lets OpenCode itself use the proxy, and returns a client with its credentials.
func (w *way) engine(models ...string) *http.Client {
	w.Engine = &network.Engine{Network: w.Network, Models: models}
	return client(w.Engine.Renew())
}

// webfetch has OpenCode ask for a URL.
func (w *way) webfetch(permission, url string) {
	w.t.Helper()
	is := is.New(w.t)
	e, err := events.NewOpenCode("c1", "main", "evt_"+permission, -1, events.OpenCode{Type: events.PermissionAsked, Properties: fmt.Appendf(nil,
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
	w.Engine.Allow([]string{"API.provider.example.:80"})
	for url, want := range map[string]int{
		local.URL: 200, "http://api.provider.example/v1": 200, "http://www.test.example/": 200, // a rule allows *.test.example
		other.URL: 403, "http://other.example/": 403, "http://api.provider.example:8080/": 403,
	} {
		status, body, err := fetch(t, c, url)
		is.NoErr(err)
		is.Equal(status, want)
		is.Equal(strings.Contains(body, "Blocked by PocketCoder: "), want != 200)
	}
	old := w.engine()
	w.Engine.Renew() // another OpenCode has started
	status, _, err := fetch(t, old, "http://www.test.example/")
	is.NoErr(err)
	is.Equal(status, 407)
}

func TestAnApprovedWebfetchCoversItsHostAndNoHostItIsRedirectedTo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	var reached atomic.Int64
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer private.Close()
	redirecting := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, map[string]string{"/private": private.URL, "/elsewhere": "http://elsewhere.example/", "/named": "http://127-0-0-1.test.example/"}[r.URL.Path], http.StatusFound)
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
