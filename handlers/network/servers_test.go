package network

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
)

// openServers returns Servers with the rules of the start.
func openServers(t *testing.T, rules ...string) (*Servers, *networkFixture) {
	o := openNetworkFixture(t, permission.NetworkOff, rules...)
	return &Servers{Network: o.network}, o
}

func startServer(t *testing.T, n *Servers, id, name string, hosts []string) *Server {
	t.Helper()
	s, err := n.Start(id, name, hosts)
	is.New(t).NoErr(err)
	return s
}

func TestAnMCPServerReachesItsHostsUnlessARuleDeniesOne(t *testing.T) {
	t.Parallel()
	n, o := openServers(t, "network: other.example.org", "deny network: bad.example.org", "deny network: 10.0.0.9")
	s := startServer(t, n, "s1", "lab", []string{"api.example.org", "*.example.com", "git.example.org:22", "10.0.0.7",
		"10.0.0.8:8080", "bad.example.org", "10.0.0.9",
		"[fd00::1]:80"})
	for address, says := range map[string]string{
		"api.example.org:443":   "",
		"API.Example.org.:80":   "",
		"api.example.org:22":    "may not reach it. Its hosts are: api.example.org, ",
		"a.example.com:443":     "",
		"example.com:443":       "may not reach it",
		"git.example.org:22":    "",
		"git.example.org:443":   "may not reach it",
		"10.0.0.7:443":          "",
		"10.0.0.7:8080":         "may not reach it",
		"10.0.0.8:8080":         "",
		"10.0.0.8:80":           "may not reach it",
		"[fd00::1]:80":          "",
		"[fd00::2]:80":          "may not reach it",
		"127.0.0.1:80":          "may not reach it",
		"localhost:80":          "A private host is named by its IP address.",
		"other.example.org:443": "may not reach it", // the rule is for commands
		"bad.example.org:443":   "a rule denies it: deny network: bad.example.org",
		"10.0.0.9:80":           "a rule denies it: deny network: 10.0.0.9",
		"a\x00.example.com:443": "U+0000",
	} {
		t.Run(address, func(t *testing.T) {
			is := is.New(t)
			before := len(connectionsOf(t, o))
			for range 3 {
				_, err := s.CheckAddress(t.Context(), address)
				is.Equal(err == nil, says == "")
				if err != nil {
					is.True(handlerstest.Refusal(t, err) != "")
					expect.Contains(t, err.Error(), says)
				}
			}
			all := connectionsOf(t, o)
			is.Equal(len(all), before+1) // recorded once
			is.Equal([]any{all[before].Name, all[before].Allowed}, []any{"lab", says == ""})
		})
	}
}

func TestAWildcardCoversNoEndlessNumberOfAddresses(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n, o := openServers(t)
	s := startServer(t, n, "s1", "lab", []string{"*.example.com"})
	s.reached = maxReached - 1
	for range 2 { // the second time it is known
		_, err := s.CheckAddress(t.Context(), "last.example.com:443")
		is.NoErr(err)
	}
	_, err := s.CheckAddress(t.Context(), "more.example.com:443")
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	expect.Contains(t, err.Error(), "may reach no other")
	is.Equal(len(connectionsOf(t, o)), 1)
}

// connectionsOf returns the connections of the server s1.
func connectionsOf(t *testing.T, o *networkFixture) (all []events.MCPConnected) {
	subject := events.ConfigSubject(mcpserver.Collection, "s1", events.MCPConnected{}.Kind())
	_, err := o.Log.Fold(t.Context(), subject, 0, func(e events.Event) error {
		d, err := events.Decode(e)
		all = append(all, d.(events.MCPConnected))
		return err
	})
	is.New(t).NoErr(err)
	return all
}

func TestCredentialsOfAnMCPServerAreItsOwnWhileItRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n, o := openServers(t)
	first, second := startServer(t, n, "s1", "first", []string{"a.example.org"}), startServer(t, n, "s2", "second", nil)
	token := func(s *Server) string { password, _ := s.URL("127.0.0.1:1").User.Password(); return password }
	got, ok := n.Running("s1", token(first))
	is.True(ok && got == first)
	_, ok = n.Running("s1", token(second))
	is.True(!ok)
	_, ok = n.Running("s3", "")
	is.True(!ok)
	_, err := second.CheckAddress(t.Context(), "a.example.org:443")
	is.True(err != nil)

	ctx, _, ok := first.Begin(t.Context())
	is.True(ok)
	for range MaxConnections - 1 {
		_, _, ok = first.Begin(t.Context())
		is.True(ok)
	}
	_, _, ok = first.Begin(t.Context())
	is.True(!ok) // as many as a command may have
	first.Done()
	<-ctx.Done() // its connections end with it
	_, ok = n.Running("s1", token(first))
	is.True(!ok)
	_, _, ok = first.Begin(t.Context())
	is.True(!ok)
	is.Equal(string(o.Log.Redactor().Bytes([]byte(token(first)+token(second)))), "[redacted][redacted]")
}

func TestAnMCPServerHasNoNetworkWhoseCredentialsWouldReachTheLog(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n, o := openServers(t)
	var others []string
	for i := range secret.System.Budget() {
		others = append(others, fmt.Sprint("secret-of-another-", i))
	}
	o.Log.Conceal(secret.System, "others", others...)
	_, err := n.Start("s1", "lab", nil)
	is.True(err != nil)
	o.Log.Conceal(secret.System, "others")
	startServer(t, n, "s1", "lab", nil)
}
