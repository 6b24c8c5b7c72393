package main

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/projections"
)

// ownTool is a script that calls a tool of PocketCoder's own MCP server and says done.
func ownTool(name string, args map[string]any) string {
	return call("pocketcoder_"+name, args) + "\n@@next\n@@say done"
}

// outputOf waits for the end of the turn and returns what the model was told by its n-th tool call.
func (p *process) outputOf(t testing.TB, chat string, n int) string {
	t.Helper()
	p.turnEnds(t, chat)
	calls := p.tools(t, chat)
	if len(calls) <= n {
		t.Fatalf("chat %s has %d calls", chat, len(calls))
	}
	return calls[n].State.Output + calls[n].State.Error
}

func TestModelsProposalWaitsForAPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, ownTool("propose", map[string]any{"kind": "procedure", "name": "release notes", "content": "# How"}))
	expect.Contains(t, p.outputOf(t, chat, 0), "A person has to approve it.")
	shown := p.admin(t).list(t, "proposals", `name = "release notes"`)
	is.Equal(len(shown), 1)
	is.Equal([]any{shown[0]["status"], shown[0]["authored_by"], shown[0]["content"]}, []any{"draft", "poco", "# How"})
	for _, r := range rows[projections.Permission](t, p, "permissions", chat) { // asked, and allowed by a default rule
		is.Equal([]string{r.Permission, r.Status}, []string{"pocketcoder_propose", projections.PermissionAuthorized})
	}
	is.Equal(p.text(t, chat), "done")
}

// TestModelCannotChooseTheCallerOfATool lets the model send a caller of its own, which the plugin replaces.
func TestModelCannotChooseTheCallerOfATool(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, ownTool("mcp_status", map[string]any{"caller": "forged.caller"}))
	is.Equal(p.outputOf(t, chat, 0), `{"servers":[]}`)
	is.Equal(p.text(t, chat), "done")
}

// TestOwnToolsWorkAtEveryIsolationLevel uses them again after OpenCode was killed, because its next start has secrets
// of its own.
func TestOwnToolsWorkAtEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*process{
		"none": unconfinedSystem.system(t), "landlock": startInside(t, "--isolation", "landlock"),
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			chat := p.chat(t, ownTool("mcp_status", map[string]any{}))
			is.Equal(p.outputOf(t, chat, 0), `{"servers":[]}`)
			killOpenCode(t, p)
			p.submit(t, chat, ownTool("mcp_status", map[string]any{}))
			expect.Eventually(t, "the second call is answered", func() bool { return p.text(t, chat) == "done|done" })
			is.Equal(p.outputOf(t, chat, 1), `{"servers":[]}`)
		})
	}
}
