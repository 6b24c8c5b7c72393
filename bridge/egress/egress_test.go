package egress_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
)

// site is a web server that says which request it got.
func site(t testing.TB, secure bool) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s\n", r.Method, r.Host, r.URL.RequestURI())
		_ = r.Header.Write(w)
		_, _ = w.Write(body)
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func host(rawURL string) string {
	u, _ := url.Parse(rawURL)
	return u.Host
}

func fetch(t testing.TB, c *http.Client, address string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	is.New(t).NoErr(err)
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestATunnelCarriesTLSFromEndToEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	s := site(t, true)
	w.Instead("www.test.example:443", host(s.URL))
	c := client(w.begin("x1"))
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "example.com"}
	status, body, err := fetch(t, c, "https://WWW.test.example/a?b=c")
	is.NoErr(err)
	is.Equal(status, 200)
	is.True(strings.HasPrefix(body, "GET WWW.test.example /a?b=c\n"))
	expect.Lacks(t, body, "Proxy")
	all := w.connected()
	is.Equal(len(all), 1)
	is.Equal(all[0], events.ExecConnected{Exec: "x1", Host: "www.test.example", Port: 443, Allowed: true,
		Reason: "a rule allows it: network: *.test.example"})
}

func TestAPlainRequestPassesAsItIs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkOff)
	w.Instead("www.test.example:80", host(site(t, false).URL))
	proxy := w.begin("x1")
	token, _ := proxy.User.Password()
	auth := credentials(proxy)
	answer := w.say("POST http://www.test.example/a%%2fb;c?q=1;2&%%zz HTTP/1.1\r\nHost: evil.com\r\nProxy-Authorization: Basic %s\r\nProxy-Connection: keep-alive\r\n"+
		"Connection: close, X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\nX-Own: 2\r\nContent-Length: 4\r\n\r\nbody", auth)
	_, body, _ := strings.Cut(answer, "\r\n\r\n")
	is.True(strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\n"))
	// byte for byte, and the host of the address counts
	expect.Contains(t, body, "POST www.test.example /a%2fb;c?q=1;2&%zz\n")
	expect.Contains(t, body, "X-Own: 2")
	expect.Contains(t, body, "body")
	for _, hidden := range []string{"Proxy-", auth, token, "X-Hop", "Upgrade", "Forwarded", "Via", "User-Agent",
		"Accept-Encoding", "evil.com"} {
		expect.Lacks(t, body, hidden)
	}
}

func TestWithoutTheCredentialsOfARunningCommandNothingIsAnswered(t *testing.T) {
	t.Parallel()
	w := open(t, permission.NetworkOff)
	w.Instead("www.test.example:80", host(site(t, false).URL))
	right, other, ended := w.begin("x1"), w.begin("x2"), w.begin("x3")
	w.Network.Done("x3")
	basic := func(u *url.URL) string {
		return "Proxy-Authorization: Basic " + credentials(u)
	}
	for name, header := range map[string]string{
		"none":                  "X: y",
		"a wrong token":         basic(&url.URL{User: url.UserPassword("x1", "wrong")}),
		"an empty token":        basic(&url.URL{User: url.UserPassword("x1", "")}),
		"another command's":     basic(&url.URL{User: url.UserPassword("x2", strings.TrimPrefix(right.User.String(), "x1:"))}),
		"one that has ended":    basic(ended),
		"not for the proxy":     strings.TrimPrefix(basic(right), "Proxy-"),
		"of another kind":       strings.Replace(basic(right), "Basic", "Bearer", 1),
		"not base64":            "Proxy-Authorization: Basic " + right.User.String(),
		"in the address's path": "X-Path: " + other.User.String(),
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			for _, request := range []string{"GET http://www.test.example/ HTTP/1.1\r\nHost: a",
				"CONNECT www.test.example:80 HTTP/1.1\r\nHost: a"} {
				answer := w.say("%s\r\n%s\r\n\r\n", request, header)
				is.True(strings.HasPrefix(answer, "HTTP/1.1 407 "))
				expect.Contains(t, answer, `Proxy-Authenticate: Basic realm="PocketCoder"`)
				expect.Contains(t, answer, "\r\nConnection: close\r\n")
			}
		})
	}
	is.New(t).Equal(len(w.connected()), 0)
}

// What is never reached, however it is written and whatever is allowed.
func TestOnlyPublicHostsAreReached(t *testing.T) {
	t.Parallel()
	w := open(t, permission.NetworkOpen)
	inner := site(t, false)
	_, port, _ := net.SplitHostPort(host(inner.URL))
	proxy := w.begin("x1")
	auth := credentials(proxy)
	for _, c := range []struct {
		request string
		status  int
		want    string
	}{
		{"CONNECT 127.0.0.1:" + port, 403, "not a public host"},
		{"CONNECT LOCALHOST.:" + port, 403, "not a public host"},
		{"CONNECT 0x7f000001:" + port, 403, "not a public host"},
		{"CONNECT 2130706433:" + port, 403, "not a public host"},
		{"CONNECT 127.1:443", 403, "not a public host"},
		{"CONNECT 0:443", 403, "not a public host"},
		{"CONNECT [::1]:443", 403, "not a public host"},
		{"CONNECT [::ffff:127.0.0.1]:" + port, 403, "not a public host"},
		{"CONNECT [64:ff9b::7f00:1]:443", 403, "not a public host"},
		{"CONNECT 169.254.169.254:80", 403, "not a public host"},
		{"CONNECT 127.0.0.1.nip.io:443", 403, "not a public host"},
		{"CONNECT 127-0-0-1.rebind.example:443", 403, "127.0.0.1 is not a public address"},
		{"CONNECT 169-254-169-254.rebind.example:443", 403, "169.254.169.254 is not a public address"},
		{"CONNECT 10-0-0-1.rebind.example:443", 403, "10.0.0.1 is not a public address"},
		{"CONNECT 100-64-0-1.rebind.example:443", 403, "100.64.0.1 is not a public address"},
		{"GET http://127-0-0-1.rebind.example/", 403, "127.0.0.1 is not a public address"},
		{"GET http://127.0.0.1:" + port + "/", 403, "not a public host"},
		{"GET http://[::1%25lo]/", 403, "not the plain name"},
		{"GET http://example.com@127.0.0.1/", 400, "user's name"},
		{"GET http://127.0.0.1\\@example.com/", 400, ""},
		{"CONNECT example.com@127.0.0.1:" + port, 400, "user's name"},
		{"CONNECT evil\x00.google.com:443", 400, ""},
		{"CONNECT evil%00.google.com:443", 400, ""},
		{"CONNECT g\xc3\xb6ogle.com:443", 403, "xn--"},
		{"CONNECT example.com", 400, "host:port"},
		{"CONNECT example.com:", 403, "not a port"},
		{"CONNECT example.com:443/x", 400, ""},
		{"CONNECT /example.com:443", 400, ""},
		{"CONNECT no-such.example:443", 502, "there is no such host"},
		{"GET /", 400, "this is a proxy"},
		{"GET https://example.com/", 400, "this is a proxy"},
		{"GET ftp://example.com/", 400, "this is a proxy"},
		{"OPTIONS *", 400, ""},
	} {
		t.Run(c.request, func(t *testing.T) {
			is := is.New(t)
			answer := w.say("%s HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: Basic %s\r\nConnection: close\r\n\r\n",
				c.request, auth)
			t.Log(answer)
			is.True(strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d ", c.status)))
			expect.Contains(t, answer, c.want)
			is.True(c.status != 502 || !strings.Contains(answer, "Blocked by")) // a host that does not answer is not blocked
			if line, _, _ := strings.Cut(answer, "\r\n"); c.status == 403 && strings.HasPrefix(c.request, "CONNECT") {
				expect.Contains(t, line, "Blocked by PocketCoder") // all that curl and git show
			}
		})
	}
	is := is.New(t)
	for _, d := range w.connected() {
		if !d.Allowed {
			is.True(d.Reason != "")
		} else {
			is.True(strings.HasSuffix(d.Host, ".example")) // let to the name, then kept from where it leads
		}
	}
}

func TestAConnectionWaitsForAPersonAndGoesOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t, permission.NetworkAsks)
	w.Instead("www.other.example:80", host(site(t, false).URL))
	c := client(w.begin("x1"))
	type result struct {
		status int
		body   string
		err    error
	}
	results := make(chan result)
	for range 2 {
		go func() {
			status, body, err := fetch(t, c, "http://www.other.example/")
			results <- result{status, body, err}
		}()
	}
	w.decide(w.hostRequest(1), events.Authorized)
	for range 2 {
		r := <-results
		is.NoErr(r.err)
		is.Equal(r.status, 200)
	}
	is.Equal(len(w.connected()), 1)

	go func() {
		_, _, err := fetch(t, c, "https://evil.example/")
		results <- result{err: err}
	}()
	w.decide(w.hostRequest(2), events.Denied)
	expect.Contains(t, (<-results).err.Error(), "Blocked by PocketCoder: evil.example:443: denied by user:alice")
}

func TestWhenNobodyDecidesTheCommandIsToldToComeAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := openFor(t, permission.NetworkAsks, 2*time.Second, 0, 0) // long enough for the request to be recorded
	w.Instead("www.other.example:80", host(site(t, false).URL))
	c := client(w.begin("x1"))
	status, body, err := fetch(t, c, "http://www.other.example/")
	is.NoErr(err)
	is.Equal(status, http.StatusGatewayTimeout)
	expect.Contains(t, body, "still waits for a person")
	w.decide(w.hostRequest(1), events.Authorized)
	w.Network.Done("x1")
	status, _, err = fetch(t, client(w.begin("x2")), "http://www.other.example/") // the command is repeated
	is.NoErr(err)
	is.Equal(status, 200)
}
