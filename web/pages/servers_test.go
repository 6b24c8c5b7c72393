package pages_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// connected records that a server was allowed to reach a host, or refused.
func connected(t *testing.T, s *webtest.System, server string, d events.MCPConnected) {
	t.Helper()
	e, err := events.NewConfig(mcpserver.Collection, server, events.ActorPolicy, d)
	webtest.Check(t, err)
	last, err := s.Log.Append(t.Context(), e)
	webtest.Check(t, err)
	webtest.Check(t, s.Model.Wait(t.Context(), last))
}

// report records what a started server says of itself.
func report(t *testing.T, s *webtest.System, server string, r mcpserver.Report) {
	t.Helper()
	all, err := mcpserver.All(t.Context(), s.Records)
	webtest.Check(t, err)
	for _, one := range all {
		if one.ID == server {
			_, err := mcpserver.SaveReport{Record: server, Of: one.Server, Report: r}.Save(t.Context(), s.Records)
			webtest.Check(t, err)
		}
	}
	last, err := s.Log.Last(t.Context())
	webtest.Check(t, err)
	webtest.Check(t, s.Model.Wait(t.Context(), last))
}

// The page and the API show the state, the problem and the last answer for each address of a server, and only of it.
func TestTheStateAndTheConnectionsOfAnMCPServerAreShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", "admin")
	_, bot := s.User(t, "bot", "agent")
	_, ada := s.User(t, "ada", "user")
	add := func(name string) string {
		_, made := s.Call(t, root, "POST", webtest.RecordsPath("mcp_servers"),
			webtest.Object{"name": name, "status": "pending", "command": name, "hosts": []string{"api.example.org"}})
		at := webtest.RecordsPath("mcp_servers") + "/" + made["id"].(string)
		status, _ := s.Call(t, root, "PATCH", at,
			webtest.Object{"status": "approved", "shown_definition": made["definition"]})
		is.Equal(status, http.StatusOK)
		return made["id"].(string)
	}
	lab, other := add("lab"), add("other")
	report(t, s, lab, mcpserver.Report{Problem: "It ended.\x1b[2K"})
	report(t, s, other, mcpserver.Report{Tools: []mcpserver.Tool{{Name: "echo", InputSchema: []byte("{}")}}})
	connected(t, s, lab, events.MCPConnected{Name: "lab", Host: "api.example.org", Port: 443, Reason: "denied at first"})
	connected(t, s, lab, events.MCPConnected{Name: "lab", Host: "api.example.org", Port: 443, Allowed: true})
	connected(t, s, lab, events.MCPConnected{Name: "lab", Host: "example.net", Port: 80, Reason: "<not> a host of lab"})

	page := loggedIn(t, s, "root").visit(t, "/settings/mcp_servers").body
	for _, want := range []string{`<span class="state problem">approved</span>`, "It ended.␛[2K",
		`<span class="state">active</span>`, "<code>allowed api.example.org:443</code>", "<code>refused example.net:80</code> &lt;not&gt; a host of lab <time"} {
		expect.Contains(t, page, want)
	}
	expect.Contains(t, page, "Tools: 1 (version ")
	expect.Contains(t, page, "<li><code>echo</code>")
	expect.Lacks(t, page, "sha256")
	is.True(!strings.Contains(page, "denied at first"))
	is.Equal(strings.Count(page, "Connections of the last seven days:"), 1)

	for _, token := range []string{root, bot} {
		status, one := s.Call(t, token, "GET", "/api/mcp/"+lab, nil)
		is.Equal(status, http.StatusOK)
		is.Equal([]any{one["state"], one["problem"]}, []any{"approved", "It ended.\x1b[2K"})
		list := one["connections"].([]any)
		is.Equal(len(list), 2)
		is.Equal(list[0].(map[string]any)["allowed"], true)
		is.Equal(list[1].(map[string]any)["host"], "example.net")
	}
	is.True(!strings.Contains(page, "Last call:"))
	_, one := s.Call(t, root, "GET", "/api/mcp/"+other, nil)
	is.Equal([]any{one["state"], one["problem"], one["connections"]}, []any{"active", nil, []any{}})
	status, _ := s.Call(t, ada, "GET", "/api/mcp/"+lab, nil)
	is.Equal(status, http.StatusForbidden)
	for _, id := range []string{"unknown", "*", "%3E"} {
		status, _ := s.Call(t, root, "GET", "/api/mcp/"+id, nil)
		is.Equal(status, http.StatusNotFound)
	}
	expect.Lacks(t, loggedIn(t, s, "ada").visit(t, "/settings/mcp_servers").body, "example.net")
}

// The page and the API show the last call of each server: which tool, when, and its result.
func TestTheLastCallOfAnMCPServerIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", "admin")
	chat := s.ChatWithAnswer(t, root)
	_, made := s.Call(t, root, "POST", webtest.RecordsPath("mcp_servers"),
		webtest.Object{"name": "lab", "status": "pending", "command": "lab"})
	lab := made["id"].(string)
	b := loggedIn(t, s, "root")
	last := func() webtest.Object {
		_, one := s.Call(t, root, "GET", "/api/mcp/"+lab, nil)
		call, _ := one["last_call"].(webtest.Object)
		return call
	}
	is.Equal(last(), nil)
	call := func(id, tool string) {
		s.Append(t, chat, events.MCPCalled{Server: lab, Name: "lab", Tool: tool, Session: "ses_1", Call: id})
	}
	call("call_1", "echo")
	is.Equal([]any{last()["tool"], last()["state"], last()["chat"], last()["result"]}, []any{"echo", "running", chat, nil})
	expect.Contains(t, b.visit(t, "/settings/mcp_servers").body, "<code>echo</code> is running,")
	s.Append(t, chat, events.MCPReturned{Session: "ses_1", Call: "call_1", DurationMS: 12,
		Result: []byte(`{"content":[{"type":"text","text":"<b>8 °C</b>"},{"type":"image","data":"AAAA"}]}`)})
	is.Equal([]any{last()["state"], last()["result"], last()["duration_ms"]}, []any{"completed", "<b>8 °C</b>", 12.0})
	for _, want := range []string{"completed in 12 ms,", "&lt;b&gt;8 °C&lt;/b&gt;", `href="/chats/` + chat + `"`} {
		expect.Contains(t, b.visit(t, "/settings/mcp_servers").body, want)
	}

	call("call_2", "add")
	call("call_3", "sum")
	s.Append(t, chat, events.MCPReturned{Session: "ses_1", Call: "call_2", Error: "it ended"}) // not the last
	is.Equal([]any{last()["tool"], last()["state"]}, []any{"sum", "running"})
	s.Append(t, chat, events.MCPReturned{Session: "ses_1", Call: "call_3", DurationMS: 7,
		Result: []byte(`{"isError":true,"content":[{"type":"text","text":"` + strings.Repeat("ä", 300) + `"}]}`)})
	is.Equal(last()["state"], "failed")
	is.Equal(last()["result"], strings.Repeat("ä", 199)+"…")
	call("call_2", "echo") // a model uses an id again
	is.Equal([]any{last()["tool"], last()["state"], last()["result"]}, []any{"echo", "running", nil})
	s.Append(t, chat, events.MCPReturned{Session: "ses_1", Call: "call_2", Error: "the connection was closed"})
	is.Equal([]any{last()["state"], last()["result"]}, []any{"failed", "the connection was closed"})

	s.Call(t, root, "DELETE", webtest.RecordsPath("chats")+"/"+chat, nil)
	is.Equal([]any{last()["tool"], last()["chat"], last()["result"]}, []any{"echo", nil, nil})
}
