package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	records "pocketcoder/handlers/record"
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

// mcpState waits until the only MCP server has a state.
func (p *process) mcpState(t testing.TB, state string) (s records.MCPServer) {
	t.Helper()
	expect.Eventually(t, "the MCP server is "+state, func() bool {
		var all []records.MCPServer
		return json.Unmarshal([]byte(p.mcp(t, "list", "--json")), &all) == nil && len(all) == 1 &&
			func() bool { s = all[0]; return s.State() == state }()
	})
	return s
}

// TestModelCallsToolsOfAnApprovedMCPServer runs the server in the sandbox.
func TestModelCallsToolsOfAnApprovedMCPServer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startInside(t)
	build := exec.Command("go", "build", "-o", filepath.Join(p.workspace, "lab"), "../../bridge/mcp/gateway/testdata/lab")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	is.NoErr(build.Run())

	p.mcp(t, "add", "lab", "./lab", "--reason", "to test")
	is.Equal(p.mcpState(t, "pending").Reason, "to test")
	p.mcp(t, "approve", "lab")
	is.Equal(len(p.mcpState(t, "active").Tools), 5)

	const echo = "pocketcoder_mcp_lab_echo"
	chat := p.chat(t, ownTool("mcp_lab_echo", map[string]any{"text": "hello"}))
	asked := p.approve(t, chat, 0)
	is.Equal(asked.Permission, echo)
	is.Equal(p.outputOf(t, chat, 0), "hello")
	is.Equal(p.text(t, chat), "done")
	var called events.MCPCalled
	is.NoErr(json.Unmarshal(p.event(t, chat, "mcp.called", func(events.Event) bool { return true }).Data, &called))
	is.Equal([]string{called.Name, called.Tool, string(called.Arguments)}, []string{"lab", "echo", `{"text":"hello"}`})
	returned := p.event(t, chat, "mcp.returned", func(events.Event) bool { return true })
	expect.Contains(t, string(returned.Data), `"text":"hello"`)
	for _, r := range rows[projections.Permission](t, p, "permissions", chat) {
		is.Equal([]string{r.Permission, r.Status}, []string{echo, projections.PermissionAuthorized})
	}

	chat = p.chat(t, ownTool("mcp_lab_dial", map[string]any{"text": strings.TrimPrefix(p.HTTP, "http://")}))
	p.approve(t, chat, 0)
	expect.Contains(t, p.outputOf(t, chat, 0), "dial tcp") // it has no network

	chat = p.chat(t, ownTool("mcp_lab_change", map[string]any{"text": "mails it"}))
	p.approve(t, chat, 0)
	is.Equal(p.outputOf(t, chat, 0), "changed")
	p.mcpState(t, "pending")
	expect.Contains(t, p.mcp(t, "show", "lab"), `+ echo, description: "mails it"`)
	chat = p.chat(t, ownTool("mcp_lab_echo", map[string]any{"text": "hello"}))
	p.turnEnds(t, chat)
	is.Equal(slices.Contains(p.kinds(t.Context(), chat), "mcp.called"), false)
}
