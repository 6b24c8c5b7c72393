package opencode_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/ops/expect"
)

// signsCalls notes five calls in the plugin and then makes them. It prints which of them were signed.
const signsCalls = `
const sent = []
globalThis.fetch = Object.assign(async (_, { body }) => sent.push(JSON.parse(body).params.arguments.caller), { preconnect() {} })
const hooks = await (await import("./plugin.js")).PocketCoder({ directory: "/" })
const callers = []
for (let i = 0; i < 5; i++) {
  const args = {}
  await hooks["tool.execute.before"]({ tool: "pocketcoder_assign", sessionID: "ses_1", callID: "call_" + i }, { args })
  callers.push(args.caller)
}
for (const caller of callers)
  await fetch("http://own.example/mcp", { body: JSON.stringify({ method: "tools/call", params: { arguments: { caller } } }) })
console.log(sent.map((caller) => caller.includes(".")).join(" "))
process.exit(0)
`

// The plugin runs in the Bun with which OpenCode is built.
func TestThePluginForgetsTheOldestCallsThatWereNotMade(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	source, err := opencode.Plugin(opencode.MCPServer{URL: "http://own.example/mcp"})
	is.NoErr(err)
	const limit = "const mostCalls = 10_000"
	expect.Contains(t, source, limit)
	dir := t.TempDir()
	expect.WriteFile(t, filepath.Join(dir, "plugin.js"), strings.Replace(source, limit, "const mostCalls = 3", 1))
	expect.WriteFile(t, filepath.Join(dir, "test.js"), signsCalls)
	bun := exec.Command(opencodetest.Tools(t).OpenCode, "run", "test.js")
	bun.Dir = dir
	bun.Env = append(os.Environ(), "BUN_BE_BUN=1", "POCKETCODER_MCP_CALLER_KEY=key", "HOME="+dir)
	out, err := bun.CombinedOutput()
	is.NoErr(err)
	is.Equal(string(out), "false false true true true\n")
}
