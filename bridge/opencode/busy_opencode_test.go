package opencode_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
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

// TestToolCallsCannotBlockOpenCode is one test because each start of OpenCode takes seconds.
func TestToolCallsCannotBlockOpenCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := newBridgedOpenCode(t)
	long, short, old := lines(100_000, "x %d"), lines(8000, "x %d"), lines(3000, "old %d")
	at := func(name string) string { return filepath.Join(w.workspace, name) }
	expect.WriteFile(t, at("long.txt"), long)
	expect.WriteFile(t, at("short.txt"), short)
	expect.WriteFile(t, at("old.txt"), old)
	expect.WriteFile(t, at("same.txt"), strings.Repeat("a\n", 50_000))
	expect.WriteFile(t, at("large.txt"), strings.Repeat("a\n", 1<<20)+"b\n")
	for _, c := range []struct {
		name, tool string
		args       map[string]any
		requests   int
		want       string
	}{
		{"a change of one line", "edit", map[string]any{"filePath": at("long.txt"), "oldString": "x 50000\n", "newString": "y\n"}, 1, "Edit applied successfully"},
		{"a large file", "edit", map[string]any{"filePath": at("large.txt"), "oldString": "b", "newString": "y"}, 0, "has more than 2 MiB"},
		{"a file that would grow large", "edit", map[string]any{"filePath": at("same.txt"), "oldString": "a", "newString": lines(30, "%d"), "replaceAll": true}, 0, "has more than 2 MiB"},
		{"a large new file", "write", map[string]any{"filePath": at("new.txt"), "content": strings.Repeat("a", 2<<20+1)}, 0, "has more than 2 MiB"},
		{"a new file", "write", map[string]any{"filePath": at("new.txt"), "content": old}, 1, "Wrote file successfully"},
		{"a command of 10 KiB", "bash", map[string]any{"command": strings.Repeat("true\n", 2<<10) + ":", "description": "d"}, 1, "(no output)"},
		{"a long command", "bash", map[string]any{"command": strings.Repeat("! ", 60_000) + "true", "description": "d"}, 0, "The command has more than 32 KiB"},
		{"text that does not occur", "edit", map[string]any{"filePath": at("same.txt"), "oldString": "a\nb\nc", "newString": "y"}, 0, "oldString is in the file nowhere"},
		{"text that occurs several times", "edit", map[string]any{"filePath": at("same.txt"), "oldString": "a\na\na", "newString": "y"}, 0, "oldString is in the file more than once"},
		{"a change of every line", "edit", map[string]any{"filePath": at("long.txt"), "oldString": "x", "newString": "y", "replaceAll": true}, 0, "many lines"},
		{"a change of every line", "write", map[string]any{"filePath": at("old.txt"), "content": lines(3000, "new %d")}, 0, "many lines"},
	} {
		session, err := w.client.CreateSession(t.Context(), client.NewSession{Directory: w.workspace, Title: "a title"})
		is.NoErr(err)
		b, err := json.Marshal(c.args)
		is.NoErr(err)
		requests := turn(t, w.client, w.workspace, session.ID, fmt.Sprintf("@@call %s %s\n@@next\n@@say done", c.tool, b),
			idle(t, w.client, session.ID))
		messages, err := w.client.Messages(t.Context(), session.ID)
		is.NoErr(err)
		var parts []string
		for _, m := range messages {
			for _, p := range m.Parts {
				parts = append(parts, string(p))
			}
		}
		t.Log(c.name, c.tool)
		expect.Contains(t, strings.Join(parts, "\n"), c.want)
		is.Equal(len(requests), c.requests)
	}

	// Many calls at once that each need a long comparison: most are refused early, and another session works.
	many := func(n int, call string) (want string, requests int) {
		session, err := w.client.CreateSession(t.Context(), client.NewSession{Directory: w.workspace, Title: "a title"})
		is.NoErr(err)
		text := lines(n, "@@call "+call) + "@@next\n@@say done" // each is different, because OpenCode asks about equal calls
		requests = len(turn(t, w.client, w.workspace, session.ID, text, idle(t, w.client, session.ID)))
		messages, err := w.client.Messages(t.Context(), session.ID)
		is.NoErr(err)
		return fmt.Sprintf("%s", messages[1].Parts), requests
	}
	want, _ := many(60, fmt.Sprintf(`edit {"filePath":%q,"oldString":"old","newString":"y%%d","replaceAll":true}`,
		at("old.txt")))
	expect.Contains(t, want, "OpenCode compared very many lines in the last minute")
	want, requests := many(20, `bash {"command":"true %d","description":"d"}`)
	expect.Lacks(t, want, "keep OpenCode from answering others")
	is.Equal(requests, 20)

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
