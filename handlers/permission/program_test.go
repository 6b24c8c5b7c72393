package permission_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/ops/expect"
)

func TestAPersonReadsThatAFileIsAServersProgram(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	is.NoErr(os.Mkdir(filepath.Join(g.Directory, "tools"), 0o700))
	for _, name := range []string{"tools/srv.py", "tools/other.py"} {
		is.NoErr(os.WriteFile(filepath.Join(g.Directory, name), []byte("x"), 0o600))
	}
	permissiontest.SaveRecord(t, g.Handlers, "mcp_servers", "lab",
		`{"name":"lab","status":"approved","command":"python3 tools/srv.py --stdio"}`)
	edit := func(id, file string) handlerstest.Fact {
		return handlerstest.Permission(id, "ses_1", "call_"+id, "edit", []string{file},
			map[string]string{"filepath": filepath.Join(g.Directory, file), "diff": "+x"})
	}
	handlerstest.Happened(t, g.Log, "c1", edit("per_1", "tools/srv.py"), edit("per_2", "tools/other.py"),
		handlerstest.Bash("per_3", "echo x > tools/srv.py"), handlerstest.Bash("per_4", "cp x y; tee tools/srv.py"),
		handlerstest.Bash("per_5", "cd tools && sed -i s/a/b/ srv.py"), handlerstest.Bash("per_6", "make other.py"))
	g.AwaitIdle()
	const program = "the program of the MCP server lab, which may have secrets. If it changes, an administrator must approve the server again."
	for id, says := range map[string]string{"per_1": "The file is " + program, "per_3": "The command names " + program,
		"per_4": "The command names " + program, "per_5": "The command names " + program} {
		is.Equal(len(g.Referrals(id)), 1)
		expect.Contains(t, g.Referrals(id)[0].Reason, says)
	}
	for _, id := range []string{"per_2", "per_6"} {
		is.Equal(len(g.Referrals(id)), 1)
		expect.Lacks(t, g.Referrals(id)[0].Reason, "MCP server")
	}
}
