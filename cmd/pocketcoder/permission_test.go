package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func TestModelContinuesOnlyAfterADenialWithAReason(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("rm -rf important"))
	p.decide(t, chat, p.awaitRequest(t, chat, 0), events.Denied, "use the trash, please")
	p.turnEnds(t, chat)
	calls := p.tools(t, chat)
	is.Equal(len(calls), 1)
	is.Equal(calls[0].State.Status, "error")
	expect.Contains(t, calls[0].State.Error, "use the trash, please")
	is.Equal(p.text(t, chat), "done") // the model went on
	is.Equal(len(rows[projections.ShownExecution](t, p, "executions", chat)), 0)
	denied := rows[projections.Permission](t, p, "permissions", chat)[0]
	is.Equal([]string{denied.Status, denied.Reason, denied.DecidedBy},
		[]string{events.Denied, "use the trash, please", "user:operator"})
	is.True(denied.Replied)

	p.submit(t, chat, bash("rm -rf important"))
	p.decide(t, chat, p.awaitRequest(t, chat, 1), events.Denied, "")
	p.turnEnds(t, chat)
	is.Equal(p.tools(t, chat)[1].State.Status, "error")
	is.Equal(p.text(t, chat), "done") // the model was not asked again
	is.Equal(len(rows[projections.ShownExecution](t, p, "executions", chat)), 0)

	p.submit(t, chat, "@@say again") // and the chat can be used
	p.turnEnds(t, chat)
	is.Equal(p.text(t, chat), "done|again")
}

// decideAgain decides a request that was decided already, and returns the text of the refusal.
func (p *process) decideAgain(t testing.TB, chat string, request events.PermissionRequest, d events.Decision) string {
	t.Helper()
	err := p.Decide(t.Context(), request.ID, client.Decision{Status: d})
	var refused handlers.Refused
	if !errors.As(err, &refused) || refused.Code != handlers.Conflict {
		t.Fatalf("want a conflict, got %v", err)
	}
	return refused.Text
}

func TestFilesChangeOnlyWithApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	path := filepath.Join(p.dir(t), "edited.txt")
	edit := func(from, to string) string {
		return call("edit", map[string]any{"filePath": path, "oldString": from, "newString": to})
	}
	chat := p.chat(t, strings.Join([]string{
		call("write", map[string]any{"filePath": path, "content": "one\ntwo\n"}), edit("two", "three"), edit("one", "zero"),
		"@@say done",
	}, "\n@@next\n"))

	written := p.awaitRequest(t, chat, 0)
	is.Equal(written.Permission, "edit")
	expect.Contains(t, string(written.Metadata), "+two") // the request shows the difference
	_, err := os.Stat(path)
	is.True(errors.Is(err, os.ErrNotExist)) // nothing is written before
	p.decide(t, chat, written, events.Authorized, "")

	edited := p.awaitRequest(t, chat, 1)
	is.True(strings.Contains(string(edited.Metadata), "-two") && strings.Contains(string(edited.Metadata), "+three"))
	is.Equal(read(t, path), "one\ntwo\n")
	p.decide(t, chat, edited, events.Authorized, "")

	p.decide(t, chat, p.awaitRequest(t, chat, 2), events.Denied, "leave the first line")
	p.turnEnds(t, chat)
	is.Equal(read(t, path), "one\nthree\n")
	var states []string
	for _, c := range p.tools(t, chat) {
		states = append(states, c.Tool+" "+c.State.Status)
	}
	is.Equal(states, []string{"write completed", "edit completed", "edit error"})
}

func read(t testing.TB, path string) string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestReadingInTheWorkspaceNeedsNoApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	path := filepath.Join(p.dir(t), "notes.txt")
	is.NoErr(os.WriteFile(path, []byte("needle in the notes\n"), 0o600))
	chat := p.chat(t, strings.Join([]string{
		call("read", map[string]any{"filePath": path}),
		call("glob", map[string]any{"pattern": "*.txt", "path": filepath.Dir(path)}),
		call("grep", map[string]any{"pattern": "needle", "path": filepath.Dir(path)}),
		"@@say done",
	}, "\n@@next\n"))
	p.turnEnds(t, chat)
	for _, c := range p.tools(t, chat) {
		is.Equal(c.State.Status, "completed") // c.Tool
		expect.Contains(t, c.State.Output, "notes")
	}
	rules := map[string]string{}
	for _, a := range rows[projections.Permission](t, p, "permissions", chat) {
		is.Equal([]string{a.Status, a.DecidedBy}, []string{events.Authorized, events.ActorPolicy})
		rules[a.Permission] = a.Rule
	}
	is.Equal(rules, map[string]string{"read": "read: <workspace>", "glob": "glob: <workspace>",
		"grep": "grep: <workspace>"})
}

func TestAnApprovalIsOnlyForTheScriptThatThePersonRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	script := filepath.Join(p.dir(t), "deploy.sh")
	is.NoErr(os.WriteFile(script, []byte("echo harmless\n"), 0o600))
	name, err := filepath.Rel(p.workspace, script)
	is.NoErr(err)
	chat := p.chat(t, bash("sh "+name))
	request := p.awaitRequest(t, chat, 0)
	var referred events.PermissionReferred
	is.NoErr(json.Unmarshal(p.event(t, chat, referred.Kind(), func(events.Event) bool { return true }).Data, &referred))
	is.Equal(referred.Contents, []events.FileContent{{Path: script, Text: "echo harmless\n"}})

	is.NoErr(os.WriteFile(script, []byte("echo changed\n"), 0o600))
	is.Equal(p.decideAgain(t, chat, request, events.Authorized),
		name+" changed while the request waited. Nothing was decided. Look at the request again.")
	is.Equal(len(rows[projections.ShownExecution](t, p, "executions", chat)), 0)
	p.decide(t, chat, request, events.Authorized, "") // the person has read it
	p.turnEnds(t, chat)
	expect.Contains(t, p.tools(t, chat)[0].State.Output, "changed")
}
