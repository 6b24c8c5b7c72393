package mcp_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/bridge/mcp"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// fixture is a server in which session ses_1 is of chat c1.
type fixture struct {
	*mcp.Server
	mcp.Secrets
	url string
}

func open(t *testing.T, types ...record.Type) *fixture {
	t.Helper()
	s := &mcp.Server{
		Engine: "local", Records: record.Open(eventstest.Log(t), append(recordtype.All(nil), types...)...), Logger: slog.New(slog.DiscardHandler),
		Chat: func(session string) (string, bool) { return "c1", session == "ses_1" },
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &fixture{s, s.Renew(), server.URL + mcp.Path}
}

// withHeader adds the secret of a start to each request.
type withHeader string

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", string(h))
	return http.DefaultTransport.RoundTrip(r)
}

// connect returns a client of the server. The test closes it before the server ends.
func (f *fixture) connect(t *testing.T, header string,
	notice func(*sdk.ProgressNotificationParams)) (*sdk.ClientSession, error) {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			if notice != nil {
				notice(r.Params)
			}
		},
	})
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: f.url, MaxRetries: -1,
		HTTPClient: &http.Client{Transport: withHeader(header)}}, nil)
	if err == nil {
		t.Cleanup(func() { session.Close() })
	}
	return session, err
}

// signed counts the signatures.
var signed atomic.Int64

// sign makes a caller as plugin.js does.
func sign(key, tool, session, call, random string) string {
	list, _ := json.Marshal([]string{tool, session, call, random, strconv.FormatInt(signed.Add(1), 10)})
	return signText(key, base64.RawURLEncoding.EncodeToString(list))
}

func signText(key, body string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(body))
	return body + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func callTool(t *testing.T, session *sdk.ClientSession, name string, args map[string]any) (text string, failed bool) {
	t.Helper()
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	is.New(t).NoErr(err)
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

func TestOnlyASignedCallOfTheRunningOpenCodeIsServed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := open(t)
	session, err := f.connect(t, f.Header, nil)
	is.NoErr(err)
	good := sign(f.Key, "mcp_status", "ses_1", "call_1", "a")
	text, failed := callTool(t, session, "mcp_status", map[string]any{"caller": good})
	is.True(!failed)
	is.Equal(text, `{"servers":[]}`)
	for name, c := range map[string]struct{ caller, want string }{
		"none":                {"", "did not sign"},
		"repeated":            {good, "made already"},
		"of another tool":     {sign(f.Key, "propose", "ses_1", "call_2", "b"), "another tool"},
		"of another key":      {sign("guess", "mcp_status", "ses_1", "call_2", "c"), "did not sign"},
		"of an unknown chat":  {sign(f.Key, "mcp_status", "ses_2", "call_2", "d"), "no chat"},
		"without a session":   {sign(f.Key, "mcp_status", "", "call_2", "e"), "cannot read"},
		"with another body":   {strings.Split(sign(f.Key, "mcp_status", "ses_2", "x", "f"), ".")[0] + "." + strings.Split(good, ".")[1], "did not sign"},
		"not in base64":       {"%.%", "did not sign"},
		"signed, but no list": {signText(f.Key, "x"), "cannot read"},
	} {
		text, failed := callTool(t, session, "mcp_status", map[string]any{"caller": c.caller})
		if !failed {
			t.Errorf("%s: the call was served: %s", name, text)
		}
		expect.Contains(t, text, c.want)
	}
}

func TestEveryOwnToolIsAllowedOrAskedAboutByDefault(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := open(t)
	session, err := f.connect(t, f.Header, nil)
	is.NoErr(err)
	all, err := session.ListTools(t.Context(), nil)
	is.NoErr(err)
	is.Equal(names(all), slices.Sorted(slices.Values(slices.Concat(policy.OwnTools, policy.AskedTools))))
	for _, name := range policy.AskedTools {
		is.Equal(verdictOn(name), policy.AskPerson)
	}
	for _, name := range policy.OwnTools {
		is.Equal(verdictOn(name), policy.Allow)
	}
}

// verdictOn returns what the default rules do with a call of an own tool.
func verdictOn(name string) policy.Action {
	request := events.PermissionRequest{Permission: "pocketcoder_" + name, Patterns: []string{"*"}}
	return policy.Evaluate(policy.Defaults, workspace.Input(request, "/workspace")).Action
}

func TestAnMCPServerThatTheModelRequestsWaitsForAPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := open(t)
	session, err := f.connect(t, f.Header, nil)
	is.NoErr(err)
	calls := 0
	call := func(name string, args map[string]any) (string, bool) {
		calls++
		args["caller"] = sign(f.Key, name, "ses_1", fmt.Sprint("call_", calls), fmt.Sprint(calls))
		return callTool(t, session, name, args)
	}
	lab := map[string]any{"name": "lab", "command": "npx -y @example/lab@1.2.3", "reason": "to measure",
		"environment": []string{"API_TOKEN"}, "hosts": []string{"api.example.org"}, "status": "approved"}
	_, failed := call("mcp_request", maps.Clone(lab))
	is.True(failed) // there is no argument status
	delete(lab, "status")
	text, failed := call("mcp_request", maps.Clone(lab))
	is.Equal(failed, false)
	is.Equal(text, "The MCP server lab waits for a person. mcp_catalog says when it is active.")
	all, err := mcpserver.All(t.Context(), f.Records)
	is.NoErr(err)
	is.Equal(len(all), 1)
	is.Equal([]any{all[0].Status, all[0].Command, all[0].Reason, all[0].Hosts},
		[]any{mcpserver.Pending, "npx -y @example/lab@1.2.3", "to measure", []string{"api.example.org"}})
	text, _ = call("mcp_catalog", map[string]any{})
	is.Equal(text, `{"servers":[{"name":"lab","state":"pending"}]}`)

	for says, args := range map[string]map[string]any{
		"exists already":           lab,
		"exact version":            {"name": "other", "command": "npx -y @example/lab", "reason": "r"},
		"either a command or a":    {"name": "other", "command": "x", "url": "https://example.org/mcp", "reason": "r"},
		"Give a reason":            {"name": "other", "command": "x", "reason": ""},
		"1 to 24 letters":          {"name": "not a name", "command": "x", "reason": "r"},
		"is no host such as":       {"name": "other", "command": "x", "reason": "r", "hosts": []string{"*"}},
		"is no name of a variable": {"name": "other", "command": "x", "reason": "r", "environment": []string{"A=b"}},
	} {
		text, failed := call("mcp_request", maps.Clone(args))
		is.True(failed)
		expect.Contains(t, text, says)
	}
	for i := range 30 {
		text, failed = call("mcp_request", map[string]any{"name": fmt.Sprint("n", i), "command": "x", "reason": "r"})
	}
	is.True(failed)
	expect.Contains(t, text, "20 MCP servers wait for a person.")
}

// A type of records is declared once: the tool that makes one follows from it.
func TestATypeOfRecordsHasATool(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := open(t, record.Type{Name: "things", Title: "Things", About: "of a test", Access: record.Access{Create: record.Accounts},
		Assistants: record.Verbs{Create: true}, Command: "small-thing", Fields: []record.Field{
			{Name: "name", Kind: record.Text, Required: true, Assistant: "a name"}, {Name: "secret", Kind: record.Text}}})
	session, err := f.connect(t, f.Header, nil)
	is.NoErr(err)
	const tool = "create_small_thing"
	is.Equal(verdictOn(tool), policy.AskPerson) // a person decides, unless a rule does
	_, failed := callTool(t, session, tool, map[string]any{"caller": sign(f.Key, tool, "ses_1", "c1", "1"), "name": "door",
		"secret": "x"})
	is.True(failed)
	text, failed := callTool(t, session, tool, map[string]any{"caller": sign(f.Key, tool, "ses_1", "c2", "2"),
		"name": "door"})
	is.Equal([]any{failed, strings.HasPrefix(text, `{"id":"`)}, []any{false, true})
	all, err := record.All[struct{ Name string }](t.Context(), f.Records, "things")
	is.NoErr(err)
	is.Equal(all[0].Value.Name, "door")
}

func TestEachStartOfOpenCodeHasItsOwnSecrets(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := open(t)
	for _, header := range []string{"", "Bearer guess"} {
		_, err := f.connect(t, header, nil)
		is.True(err != nil)
	}
	old, err := f.connect(t, f.Header, nil)
	is.NoErr(err)
	before, err := old.ListTools(t.Context(), nil)
	is.NoErr(err)
	last, next := f.Secrets, f.Renew()
	_, err = old.ListTools(t.Context(), nil)
	is.True(err != nil) // its OpenCode has ended
	session, err := f.connect(t, next.Header, nil)
	is.NoErr(err)
	after, err := session.ListTools(t.Context(), nil)
	is.NoErr(err)
	is.Equal(names(before), names(after))
	text, failed := callTool(t, session, "mcp_status", map[string]any{
		"caller": sign(last.Key, "mcp_status", "ses_1", "c", "a")})
	is.True(failed)
	expect.Contains(t, text, "did not sign")
}

func names(r *sdk.ListToolsResult) (all []string) {
	for _, tool := range r.Tools {
		all = append(all, tool.Name)
	}
	return all
}
