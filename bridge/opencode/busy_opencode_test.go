package opencode_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
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

// Run toolCallsCannotBlockOpenCode after all other tests that change files: for a minute afterwards, OpenCode compares
// no lines.
func toolCallsCannotBlockOpenCode(t *testing.T, w *bridgedOpenCode) {
	texts := map[string]string{
		"long.txt": lines(100_000, "x %d"), "short.txt": lines(8000, "x %d"), "old.txt": lines(3000, "old %d"),
		"same.txt": strings.Repeat("a\n", 50_000), "large.txt": strings.Repeat("a\n", 1<<20) + "b\n",
	}
	for name, text := range texts {
		expect.WriteFile(t, filepath.Join(w.workspace, name), text)
	}
	callsWithMuchWorkAreRefused(t, w)
	for _, name := range []string{"short.txt", "old.txt", "same.txt", "large.txt"} {
		is.New(t).True(w.file(name) == texts[name]) // refused calls change no file
	}
}

// manyCallsCannotBlockOpenCode uses the files of toolCallsCannotBlockOpenCode.
func manyCallsCannotBlockOpenCode(t *testing.T, w *bridgedOpenCode) {
	expect.Long(t, "keeps OpenCode busy")
	before := w.file("old.txt")
	manyCallsAreRefusedEarly(t, w)
	is.New(t).True(w.file("old.txt") == before) // refused calls change no file
	revertComparesWhatATurnChanged(t, w, "long.txt", "short.txt", "old.txt")
}

func callsWithMuchWorkAreRefused(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	at := func(name string) string { return filepath.Join(w.workspace, name) }
	calls := []struct {
		name, tool string
		args       map[string]any
		want       string
	}{
		{"a change of one line", "edit", map[string]any{"filePath": at("long.txt"), "oldString": "x 50000\n", "newString": "y\n"}, "Edit applied successfully"},
		{"a large file", "edit", map[string]any{"filePath": at("large.txt"), "oldString": "b", "newString": "y"}, "has more than 2 MiB"},
		{"a file that would grow large", "edit", map[string]any{"filePath": at("same.txt"), "oldString": "a", "newString": lines(30, "%d"), "replaceAll": true}, "has more than 2 MiB"},
		{"a large new file", "write", map[string]any{"filePath": at("new.txt"), "content": strings.Repeat("a", 2<<20+1)}, "has more than 2 MiB"},
		{"a new file", "write", map[string]any{"filePath": at("new.txt"), "content": lines(3000, "old %d")}, "Wrote file successfully"},
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
}

// Of many calls at once that each need a long comparison, most are refused early, and another session works.
func manyCallsAreRefusedEarly(t *testing.T, w *bridgedOpenCode) {
	// each is different, because OpenCode asks about equal calls
	made, _ := w.turnOfCalls(lines(30, fmt.Sprintf(`@@call edit {"filePath":%q,"oldString":"old","newString":"y%%d","replaceAll":true}`,
		filepath.Join(w.workspace, "old.txt"))))
	expect.Contains(t, strings.Join(made, "\n"), "OpenCode compared very many lines in the last minute")
	made, requests := w.turnOfCalls(lines(5, `@@call bash {"command":"true %d","description":"d"}`))
	expect.Lacks(t, strings.Join(made, "\n"), "keep OpenCode from answering others")
	is.New(t).Equal(len(requests), 5)
}

// A turn changes a character in each line of some files, and is reverted.
func revertComparesWhatATurnChanged(t *testing.T, w *bridgedOpenCode, names ...string) {
	is := is.New(t)
	before := map[string]string{}
	for _, name := range names {
		before[name] = w.file(name)
	}
	session := w.session("a title")
	turn(t, w.client, w.workspace, session, fmt.Sprintf(`@@call bash {"command":"sed -i 's/[xo]/y/' %s","description":"d"}`,
		strings.Join(names, " "))+"\n@@next\n@@say done", idle(t, w.client, session))
	for _, name := range names {
		is.True(w.file(name) != before[name])
	}
	messages, err := w.client.Messages(t.Context(), session)
	is.NoErr(err)
	is.NoErr(w.client.Revert(t.Context(), session, messages[0].Info.ID)) // OpenCode compares what the turn changed
	for _, name := range names {
		is.True(w.file(name) == before[name])
	}
}
