package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	chats "pocketcoder/handlers/chat"
	records "pocketcoder/handlers/record"
	"pocketcoder/handlers/record/mcpserver"
	"pocketcoder/projections"
	"pocketcoder/projections/questions"
)

// mcp runs a subcommand of mcp, which must succeed.
func (p *process) mcp(t testing.TB, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, code := p.cli(t, "", append([]string{"mcp"}, args...)...)
	if code != 0 {
		t.Fatalf("mcp %v: %d %s", args, code, stderr)
	}
	return stdout
}

// mcpState waits until an MCP server has a state.
func (p *process) mcpState(t testing.TB, name, state string) (s records.MCPServer) {
	t.Helper()
	expect.Eventually(t, "the MCP server "+name+" is "+state, func() bool {
		var all []records.MCPServer
		if json.Unmarshal([]byte(p.mcp(t, "list", "--json")), &all) != nil {
			return false
		}
		i := slices.IndexFunc(all, func(s records.MCPServer) bool { return s.Name == name })
		if i >= 0 {
			s = all[i]
		}
		return s.State() == state
	})
	return s
}

// approveMCP approves an MCP server as mcp show prints it.
func (p *process) approveMCP(t testing.TB, name string) {
	t.Helper()
	p.mcp(t, "approve", name, p.mcpState(t, name, "pending").Definition)
}

// calledServer returns the first mcp.called of a chat.
func (p *process) calledServer(t testing.TB, chat string) (called events.MCPCalled) {
	t.Helper()
	e := p.event(t, chat, called.Kind(), func(events.Event) bool { return true })
	is.New(t).NoErr(json.Unmarshal(e.Data, &called))
	return called
}

// buildMCPServer builds the MCP server of the tests.
func buildMCPServer(t *testing.T, path string) {
	t.Helper()
	build := exec.Command("go", "build", "-o", path, "../../bridge/mcp/gateway/testdata/lab")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	is.New(t).NoErr(build.Run())
}

func callsServerInSandbox(t *testing.T, p *process) {
	is := is.New(t)
	requested := p.chat(t, ownTool("mcp_request", map[string]any{"name": "lab", "command": "./lab", "reason": "to test"}))
	expect.Contains(t, p.outputOf(t, requested, 0), "waits for a person")
	is.Equal(p.mcpState(t, "lab", "pending").Reason, "to test")
	stdout, _, _ := p.cli(t, "", "requests")
	expect.Contains(t, stdout, "lab: ./lab")
	_, stderr, code := p.cli(t, "", "mcp", "approve", "lab")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "nothing is approved yet")
	p.approveMCP(t, "lab")
	is.Equal(len(p.mcpState(t, "lab", "active").Tools), 8)

	catalogue := p.chat(t, ownTool("mcp_catalog", map[string]any{}))
	expect.Contains(t, p.outputOf(t, catalogue, 0), `{"name":"pocketcoder_mcp_lab_echo","description":"says it back"}`)
	const echo = "pocketcoder_mcp_lab_echo"
	chat := p.chat(t, ownTool("mcp_lab_echo", map[string]any{"text": "hello"}))
	asked := p.approve(t, chat, 0)
	is.Equal(asked.Permission, echo)
	is.Equal(p.outputOf(t, chat, 0), "hello")
	is.Equal(p.text(t, chat), "done")
	called := p.calledServer(t, chat)
	is.Equal([]string{called.Name, called.Tool, string(called.Arguments)}, []string{"lab", "echo", `{"text":"hello"}`})
	returned := p.event(t, chat, "mcp.returned", func(events.Event) bool { return true })
	expect.Contains(t, string(returned.Data), `"text":"hello"`)
	for _, r := range rows[projections.Permission](t, p, "permissions", chat) {
		is.Equal([]string{r.Permission, r.Status}, []string{echo, projections.PermissionAuthorized})
	}

	chat = p.chat(t, ownTool("mcp_lab_fetch", map[string]any{"text": p.HTTP}))
	p.approve(t, chat, 0)
	expect.Contains(t, p.outputOf(t, chat, 0), "dial tcp") // it has no network

	startElicitation(t, p)

	chat = p.chat(t, ownTool("mcp_lab_change", map[string]any{"text": "mails it"}))
	p.approve(t, chat, 0)
	is.Equal(p.outputOf(t, chat, 0), "changed")
	p.mcpState(t, "lab", "pending")
	expect.Contains(t, p.mcp(t, "show", "lab"), `+ echo, description: "mails it"`)
	chat = p.chat(t, ownTool("mcp_lab_echo", map[string]any{"text": "hello"}))
	p.turnEnds(t, chat)
	is.Equal(slices.Contains(p.kinds(t.Context(), chat), "mcp.called"), false)
}

// startElicitation calls a tool of the server lab that asks for an age, a colour and a note.
func startElicitation(t *testing.T, p *process) {
	is := is.New(t)
	script := ownTool("mcp_lab_ask", map[string]any{"text": "For the label"})
	chat := p.chat(t, script)
	p.approve(t, chat, 0)
	p.awaitPersonQuestion(t, chat)
	form := rows[questions.Question](t, p, "questions", chat)
	is.Equal(len(form), 3)
	is.Equal([]string{form[0].Header, form[0].Question, form[1].Question, string(form[1].Choices),
		string(form[2].Choices)},
		[]string{"MCP server lab", "For the label\n\nAge (integer)", "For the label\n\ncolour: the best one",
			`["red","blue"]`, `["Leave it out"]`})
	for i, text := range []string{"36", "blue", "Leave it out"} {
		is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: form[0].EngineQuestion, Index: i,
			Answers: []string{text}}))
	}
	is.Equal(p.outputOf(t, chat, 0), `accept {"age":36,"colour":"blue"}`)

	chat = p.chat(t, script)
	p.approve(t, chat, 0)
	is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Rejected: true,
		Question: p.awaitPersonQuestion(t, chat).EngineQuestion}))
	is.Equal(p.outputOf(t, chat, 0), "decline null")

	chat = p.chat(t, script)
	p.approve(t, chat, 0)
	p.awaitPersonQuestion(t, chat)
	p.abort(t, chat)
	p.event(t, chat, "question.expired", nil)
	p.turnEnds(t, chat)
	is.Equal(rows[questions.Question](t, p, "questions", chat)[0].Status, questions.Expired)
}

// callsServerWithHosts runs a server in the sandbox that may reach one of two HTTP servers outside.
func callsServerWithHosts(t *testing.T, p *process) {
	is := is.New(t)
	var hosts []string
	for _, text := range []string{"first", "second"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }))
		defer s.Close()
		hosts = append(hosts, strings.TrimPrefix(s.URL, "http://"))
	}
	_, stderr, code := p.cli(t, "", "mcp", "add", "net", "./lab", "--host", "localhost:80")
	is.Equal(code, 2)
	expect.Contains(t, stderr, "a private host is named by its IP address")
	p.mcp(t, "add", "net", "./lab", "--host", hosts[0], "--memory", "1GiB", "--processes", "64")
	stdout, _, _ := p.cli(t, "", "requests")
	expect.Contains(t, stdout, "net: ./lab, reaches "+hosts[0])
	p.approveMCP(t, "net")
	p.mcpState(t, "net", "active")
	fetch := func(host string) string {
		chat := p.chat(t, ownTool("mcp_net_fetch", map[string]any{"text": "http://" + host}))
		p.approve(t, chat, 0)
		return p.outputOf(t, chat, 0)
	}
	is.Equal(fetch(hosts[0]), "first")
	expect.Contains(t, fetch(hosts[1]), "The MCP server net may not reach it. Its hosts are: "+hosts[0])
	show := p.mcp(t, "show", "net")
	expect.Contains(t, show, "limits       memory 1GiB, processes 64\n")
	expect.Contains(t, show, "allowed "+hosts[0]+": a host of the MCP server net")
	expect.Contains(t, show, "refused "+hosts[1]+": The MCP server net may not reach it.")
	p.mcp(t, "hosts", "net", "--host", hosts[0], "--host", hosts[1])
	is.Equal(p.mcpState(t, "net", "pending").Difference, "+ host: "+hosts[1])
	p.mcp(t, "limits", "net", "--processes", "65")
	expect.Contains(t, p.mcpState(t, "net", "pending").Difference, "- limit: memory 1GiB\n- limit: processes 64\n+ limit: processes 65")
	p.approveMCP(t, "net")
	p.mcpState(t, "net", "active")
	is.Equal(fetch(hosts[1]), "second")
	p.mcp(t, "revoke", "net")
}

// everything is a server from npm with the tools of the protocol's authors.
const everything = "@modelcontextprotocol/server-everything@2026.8.31"

// callsServerFromNPM runs npx in the sandbox, which has no network: the package is in the workspace.
func callsServerFromNPM(t *testing.T, p *process) {
	is := is.New(t)
	install := exec.Command("npm", "install", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund",
		"--prefix", p.workspace, everything)
	out, err := install.CombinedOutput()
	if err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	p.mcp(t, "add", "everything", "npx -y "+everything+" stdio")
	p.approveMCP(t, "everything")
	s := p.mcpState(t, "everything", "active")
	is.True(s.Version != "")
	const sum = "get-sum"
	is.True(slices.ContainsFunc(s.Tools, func(t mcpserver.Tool) bool { return t.Name == sum }))

	chat := p.chat(t, ownTool("mcp_everything_"+sum, map[string]any{"a": 2, "b": 40}))
	is.Equal(p.approve(t, chat, 0).Permission, "pocketcoder_mcp_everything_"+sum)
	is.Equal(p.outputOf(t, chat, 0), "The sum of 2 and 40 is 42.")
	is.Equal(p.text(t, chat), "done")
	called := p.calledServer(t, chat)
	is.Equal([]string{called.Name, called.Tool, string(called.Arguments)},
		[]string{"everything", sum, `{"a":2,"b":40}`})
	returned := p.event(t, chat, "mcp.returned", func(events.Event) bool { return true })
	expect.Contains(t, string(returned.Data), "is 42.")
	show := p.mcp(t, "show", "everything")
	expect.Contains(t, show, "Last call:\n")
	expect.Contains(t, show, sum+" completed (")
	expect.Contains(t, show, "The sum of 2 and 40 is 42.\n")
	chat = p.chat(t, ownTool("mcp_everything_trigger-elicitation-request", map[string]any{}))
	p.approve(t, chat, 0)
	expect.Contains(t, p.outputOf(t, chat, 0), "PocketCoder declined a question of the MCP server everything")
	p.mcp(t, "revoke", "everything")
}

// callsRemoteServer runs the server outside. An address of this machine may be approved by number.
func callsRemoteServer(t *testing.T, p *process) {
	is := is.New(t)
	remote := exec.Command(filepath.Join(p.workspace, "lab"), "127.0.0.1:0")
	remote.Env = append(os.Environ(), "LAB_SECRET=wq7zk2xv9jh4-8231")
	out, err := remote.StdoutPipe()
	is.NoErr(err)
	is.NoErr(remote.Start())
	defer func() { remote.Process.Kill(); remote.Wait() }()
	address, err := bufio.NewReader(out).ReadString('\n')
	is.NoErr(err)
	p.mcp(t, "add", "remote", "http://"+strings.TrimSpace(address), "--env", "X-Lab")
	_, stderr, code := p.cli(t, "wq7zk2xv9jh4-8231\n", "mcp", "secret", "remote", "X-Lab")
	is.Equal([]any{stderr, code}, []any{"", 0})
	p.approveMCP(t, "remote")
	p.mcpState(t, "remote", "active")

	chat := p.chat(t, ownTool("mcp_remote_echo", map[string]any{"text": "it is wq7zk2xv9jh4-8231"}))
	is.Equal(p.approve(t, chat, 0).Permission, "pocketcoder_mcp_remote_echo")
	is.Equal(p.outputOf(t, chat, 0), "it is [redacted]") // in the log, for a person; the server sent it
	is.Equal(string(p.calledServer(t, chat).Arguments), `{"text":"it is [redacted]"}`)
	returned := p.event(t, chat, "mcp.returned", func(events.Event) bool { return true })
	expect.Contains(t, string(returned.Data), "it is [redacted]")
}
