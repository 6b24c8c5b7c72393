package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	chats "pocketcoder/handlers/chat"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
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
func (p *process) mcpState(t testing.TB, name, state string) (s mcpserver.Stored) {
	t.Helper()
	expect.Eventually(t, "the MCP server "+name+" is "+state, func() bool {
		var all []mcpserver.Stored
		if json.Unmarshal([]byte(p.mcp(t, "list", "--json")), &all) != nil {
			return false
		}
		i := slices.IndexFunc(all, func(s mcpserver.Stored) bool { return s.Name == name })
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
	buildMCPServer(t, filepath.Join(p.workspace, "lab"))
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
		is.Equal([]string{r.Permission, r.Status}, []string{echo, events.Authorized})
	}

	chat = p.chat(t, ownTool("mcp_lab_fetch", map[string]any{"text": p.HTTP}))
	p.approve(t, chat, 0)
	expect.Contains(t, p.outputOf(t, chat, 0), "dial tcp") // it has no network

	answersElicitation(t, p)

	chat = p.chat(t, ownTool("mcp_lab_change", map[string]any{"text": "mails it"}))
	p.approve(t, chat, 0)
	is.Equal(p.outputOf(t, chat, 0), "changed")
	p.mcpState(t, "lab", "pending")
	expect.Contains(t, p.mcp(t, "show", "lab"), `+ echo, description: "mails it"`)
	chat = p.chat(t, ownTool("mcp_lab_echo", map[string]any{"text": "hello"}))
	p.turnEnds(t, chat)
	is.Equal(slices.Contains(p.kinds(t.Context(), chat), "mcp.called"), false)
	hostsAndLimitsNeedAnApproval(t, p)
}

// hostsAndLimitsNeedAnApproval changes what a server may reach and use.
func hostsAndLimitsNeedAnApproval(t *testing.T, p *process) {
	is := is.New(t)
	_, stderr, code := p.cli(t, "", "mcp", "add", "net", "./lab", "--host", "localhost:80")
	is.Equal(code, 2)
	expect.Contains(t, stderr, "a private host is named by its IP address")
	p.mcp(t, "add", "net", "./lab", "--host", "192.0.2.1:80", "--memory", "1GiB", "--processes", "64", "--env", "TOKEN")
	_, stderr, code = p.cli(t, "wq7zk2xv9jh4-8231\n", "mcp", "secret", "net", "TOKEN")
	is.Equal([]any{stderr, code}, []any{"", 0})
	stdout, _, _ := p.cli(t, "", "requests")
	expect.Contains(t, stdout, "net: ./lab, reaches 192.0.2.1:80")
	p.approveMCP(t, "net")
	p.mcpState(t, "net", "active")
	expect.Contains(t, p.mcp(t, "show", "net"), "limits       memory 1GiB, processes 64\n")
	p.mcp(t, "hosts", "net", "--host", "192.0.2.1:80", "--host", "192.0.2.2:80")
	is.Equal(p.mcpState(t, "net", "pending").Difference, "+ host: 192.0.2.2:80")
	p.mcp(t, "limits", "net", "--processes", "65")
	expect.Contains(t, p.mcpState(t, "net", "pending").Difference, "- limit: memory 1GiB\n- limit: processes 64\n+ limit: processes 65")
	p.approveMCP(t, "net")
	p.mcpState(t, "net", "active")
	p.mcp(t, "revoke", "net")
}

// answersElicitation calls a tool of the server lab that asks for an age, a colour and a note.
func answersElicitation(t *testing.T, p *process) {
	is := is.New(t)
	chat := p.chat(t, ownTool("mcp_lab_ask", map[string]any{"text": "For the label"}))
	p.approve(t, chat, 0)
	p.awaitPersonQuestion(t, chat)
	form := rows[projections.Question](t, p, "questions", chat)
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
}
