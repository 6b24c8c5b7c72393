package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// outputs are the outputs of a finished execution in the read model.
type outputs struct{ Stdout, Stderr events.Output }

func outputsOf(t testing.TB, r projections.ShownExecution) (o outputs) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Outputs), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// runCommand runs one command in a chat to its end. It returns the execution and OpenCode's tool call.
func (p *process) runCommand(t testing.TB, args map[string]any) (projections.ShownExecution, part) {
	t.Helper()
	args["description"] = "test"
	chat := p.chat(t, call("bash", args)+"\n@@next\n@@say done")
	request := p.awaitRequest(t, chat, 0)
	p.awaitReferral(t, chat, request) // by then the directory is known
	p.decide(t, chat, request, events.Authorized, "")
	p.turnEnds(t, chat)
	all := rows[projections.ShownExecution](t, p, "executions", chat)
	if len(all) != 1 || all[0].Text != request.Command() || all[0].Text != args["command"] {
		t.Fatalf("asked for %q, ran %+v", request.Command(), all)
	}
	return all[0], p.tools(t, chat)[0]
}

func TestCommandArrivesByteForByteInItsDirectory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	dir := filepath.Join(p.dir(t), "sub dir")
	is.NoErr(os.MkdirAll(dir, 0o755))
	const command = `printf '%s|' "a  b" 'c"d' e\'f "$(printf g)" '*' "\\n" '<a href="x">&amp;</a>'` + "\necho -n -e\n" +
		"cat <<'EOF'\n$HOME `id` \"quoted\"\n\n\ttab é 日本\nEOF\npwd\n"
	run, _ := p.runCommand(t, map[string]any{"command": command, "workdir": dir})
	is.Equal([]any{run.Status, run.Text, run.Cwd}, []any{events.ExecutionCompleted, command, dir})
	is.Equal(outputsOf(t, run).Stdout.Text, `a  b|c"d|e'f|g|*|\n|<a href="x">&amp;</a>|`+
		"$HOME `id` \"quoted\"\n\n\ttab é 日本\n"+dir+"\n")
}

func TestCommandTimeoutIsReportedToTheModel(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	path := filepath.Join(p.dir(t), "pids")
	run, seen := p.runCommand(t, map[string]any{"command": "echo started; sleep 300 & echo $$ > " + path +
		"; echo $! >> " +
		path + "; wait", "timeout": 1500})
	is.Equal(run.Status, "cancelled")
	is.Equal(outputsOf(t, run).Stdout.Text, "started\n")
	expect.Contains(t, seen.State.Output, "timeout 1500 ms")
	for _, pid := range pidsIn(t, path, 2) {
		is.True(!alive(pid))
	}
}

func TestParallelCallsOfOneStepDoNotMix(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	command := func(word string) string {
		return fmt.Sprintf("for i in 1 2 3 4 5 6 7 8 9; do echo %s $i; echo %s $i >&2; sleep 0.02; done", word,
			strings.ToUpper(word))
	}
	chat := p.chat(t, call("bash", map[string]any{"command": command("left"), "description": "left"})+"\n"+
		bash(command("right")))
	first, second := p.awaitRequest(t, chat, 0), p.awaitRequest(t, chat, 1)
	is.Equal(len(rows[projections.Permission](t, p, "permissions", chat)), 2)
	p.decide(t, chat, second, events.Authorized, "")
	p.decide(t, chat, first, events.Authorized, "")
	p.turnEnds(t, chat)
	all := rows[projections.ShownExecution](t, p, "executions", chat)
	is.Equal(len(all), 2)
	seen := map[string]string{}
	for _, c := range p.tools(t, chat) {
		seen[c.CallID] = c.State.Output
	}
	for _, run := range all {
		word, other := "left", "right"
		if run.Text == command("right") {
			word, other = other, word
		}
		want := ""
		for i := 1; i <= 9; i++ {
			want += fmt.Sprintf("%s %d\n", word, i)
		}
		is.Equal(outputsOf(t, run).Stdout.Text, want)
		is.Equal(outputsOf(t, run).Stderr.Text, strings.ToUpper(want))
		expect.Contains(t, seen[run.Call], word+" 9")
		expect.Lacks(t, strings.ToLower(seen[run.Call]), other)
		is.Equal(len(p.fragments(t, events.ExecDeltaSubject(chat, run.ID))) > 0, true) // streamed while it ran
	}
}
