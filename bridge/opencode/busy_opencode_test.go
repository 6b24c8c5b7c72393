package opencode_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/expect"
)

func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i)
	}
	return b.String()
}

// turnOfCalls makes calls at once, in a session of their own. It returns the calls as OpenCode shows them, and the
// requests.
func (w *bridgedOpenCode) turnOfCalls(script string) (calls, requests []string) {
	w.t.Helper()
	session := w.session("a title")
	requests = turn(w.t, w.client, w.workspace, session, script+"@@next\n@@say done", idle(w.t, w.client, session))
	messages, err := w.client.Messages(w.t.Context(), session)
	w.must(err)
	for _, m := range messages {
		for _, p := range m.Parts {
			if strings.Contains(string(p), `"type":"tool"`) {
				calls = append(calls, string(p))
			}
		}
	}
	return calls, requests
}

// toolCallsCannotBlockOpenCode comes last: afterwards OpenCode compares no more lines for a minute.
func toolCallsCannotBlockOpenCode(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	long, short, old := lines(100_000, "x %d"), lines(8000, "x %d"), lines(3000, "old %d")
	at := func(name string) string { return filepath.Join(w.workspace, name) }
	expect.WriteFile(t, at("long.txt"), long)
	expect.WriteFile(t, at("short.txt"), short)
	expect.WriteFile(t, at("old.txt"), old)
	expect.WriteFile(t, at("same.txt"), strings.Repeat("a\n", 50_000))
	expect.WriteFile(t, at("large.txt"), strings.Repeat("a\n", 1<<20)+"b\n")
	calls := []struct {
		name, tool string
		args       map[string]any
		want       string
	}{
		{"a change of one line", "edit", map[string]any{"filePath": at("long.txt"), "oldString": "x 50000\n", "newString": "y\n"}, "Edit applied successfully"},
		{"a large file", "edit", map[string]any{"filePath": at("large.txt"), "oldString": "b", "newString": "y"}, "has more than 2 MiB"},
		{"a file that would grow large", "edit", map[string]any{"filePath": at("same.txt"), "oldString": "a", "newString": lines(30, "%d"), "replaceAll": true}, "has more than 2 MiB"},
		{"a large new file", "write", map[string]any{"filePath": at("new.txt"), "content": strings.Repeat("a", 2<<20+1)}, "has more than 2 MiB"},
		{"a new file", "write", map[string]any{"filePath": at("new.txt"), "content": old}, "Wrote file successfully"},
		{"a command of 10 KiB", "bash", map[string]any{"command": strings.Repeat("true\n", 2<<10) + ":", "description": "d"}, "(no output)"},
		{"a long command", "bash", map[string]any{"command": strings.Repeat("! ", 60_000) + "true", "description": "d"}, "The command has more than 32 KiB"},
		{"text that does not occur", "edit", map[string]any{"filePath": at("same.txt"), "oldString": "a\nb\nc", "newString": "y"}, "oldString is in the file nowhere"},
		{"text that occurs several times", "edit", map[string]any{"filePath": at("same.txt"), "oldString": "a\na\na", "newString": "y"}, "oldString is in the file more than once"},
		{"a change of every line", "edit", map[string]any{"filePath": at("long.txt"), "oldString": "x", "newString": "y", "replaceAll": true}, "many lines"},
		{"a change of every line", "write", map[string]any{"filePath": at("old.txt"), "content": lines(3000, "new %d")}, "many lines"},
	}
	var script strings.Builder
	for _, c := range calls {
		b, err := json.Marshal(c.args)
		is.NoErr(err)
		fmt.Fprintf(&script, "@@call %s %s\n", c.tool, b)
	}
	made, requests := w.turnOfCalls(script.String())
	is.Equal(len(made), len(calls))
	for i, c := range calls {
		t.Log(c.name, c.tool)
		expect.Contains(t, made[i], c.want)
	}
	slices.Sort(requests)
	is.Equal(requests, []string{"bash", "edit", "edit"}) // the calls that were not refused

	// Many calls at once that each need a long comparison: most are refused early, and another session works.
	made, _ = w.turnOfCalls(lines(60, fmt.Sprintf(`@@call edit {"filePath":%q,"oldString":"old","newString":"y%%d","replaceAll":true}`,
		at("old.txt")))) // each is different, because OpenCode asks about equal calls
	expect.Contains(t, strings.Join(made, "\n"), "OpenCode compared very many lines in the last minute")
	made, requests = w.turnOfCalls(lines(20, `@@call bash {"command":"true %d","description":"d"}`))
	expect.Lacks(t, strings.Join(made, "\n"), "keep OpenCode from answering others")
	is.Equal(len(requests), 20)

	session, err := w.client.CreateSession(t.Context(), client.NewSession{Directory: w.workspace, Title: "a title"})
	is.NoErr(err)
	before := w.file("long.txt")
	turn(t, w.client, w.workspace, session.ID, "@@call bash {\"command\":\"sed -i s/x/y/ long.txt short.txt; sed -i s/o/n/ old.txt\",\"description\":\"d\"}\n@@next\n@@say done", idle(t, w.client, session.ID))
	is.True(w.file("long.txt") != before)
	messages, err := w.client.Messages(t.Context(), session.ID)
	is.NoErr(err)
	is.NoErr(w.client.Revert(t.Context(), session.ID, messages[0].Info.ID)) // OpenCode compares what the turn changed
	is.True(w.file("long.txt") == before)
	is.True(w.file("short.txt") == short)
	is.True(w.file("old.txt") == old)
}
