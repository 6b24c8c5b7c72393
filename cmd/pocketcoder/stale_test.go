package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

const personsLine = "a person wrote this while the request waited\n"

// awaitRequestOfPerson waits until the nth request of a chat is left to a person.
func (p *process) awaitRequestOfPerson(t testing.TB, chat string, n int) events.PermissionRequest {
	t.Helper()
	request := p.awaitRequest(t, chat, n)
	p.event(t, chat, events.PermissionReferred{}.Kind(), func(e events.Event) bool {
		return strings.Contains(string(e.Data), request.ID)
	})
	return request
}

// saveFile writes a file as a person does in an editor.
func saveFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// staysAsSaved approves the waiting request of a chat, whose file a person has changed, and checks that the file
// stays, that the model reads the sentence, and that the person sees the reason everywhere.
func (p *process) staysAsSaved(t *testing.T, chat string, request events.PermissionRequest, path string, want string) {
	t.Helper()
	is := is.New(t)
	before := read(t, path)
	p.decide(t, chat, request, events.Authorized, "")
	p.turnEnds(t, chat)
	is.Equal(read(t, path), before)
	p.event(t, chat, events.PermissionExpired{}.Kind(), nil)
	tools := p.tools(t, chat)
	is.Equal(tools[len(tools)-1].State.Status, "error")
	expect.Contains(t, tools[len(tools)-1].State.Error, want) // the model reads it
	is.Equal(p.text(t, chat), "done")                         // and goes on
	shown := func() projections.Permission {
		all := rows[projections.Permission](t, p, "permissions", chat)
		return all[slices.IndexFunc(all, func(a projections.Permission) bool { return a.EnginePermission == request.ID })]
	}
	is.Equal([]string{shown().Status, shown().Reason}, []string{events.Expired, want})
	is.True(shown().Replied)
	for _, command := range [][]string{{"why", request.ID}, {"replay", chat}} {
		text, _, code := p.cli(t, "", command...)
		is.Equal(code, 0)
		expect.Contains(t, text, want) // command
	}
	is.Equal(p.explain(t, request.ID).Expired.Reason, want)
}

// OpenCode has apply_patch for models with "gpt-5" in their names.
func patchOfAChangedFileIsNotApplied(t *testing.T, p *process) {
	path := filepath.Join(p.workspace, "a.md")
	saveFile(t, path, "a\nb\n")
	chat := p.chat(t, call("apply_patch", map[string]any{"patchText": "*** Begin Patch\n*** Update File: a.md\n" +
		"*** Move to: moved.md\n@@\n a\n-b\n+B\n*** End Patch"})+"\n@@next\n@@say done")
	request := p.awaitRequestOfPerson(t, chat, 0)
	saveFile(t, path, "a\nb\n"+personsLine)
	p.staysAsSaved(t, chat, request, path, "a.md changed while the request waited. Read it again.")
}

func fileChangedMeanwhileIsShown(t *testing.T, p *process) (after func(*testing.T, *process)) {
	path := filepath.Join(p.workspace, "a.md")
	saveFile(t, path, "a\n")
	writes := call("write", map[string]any{"filePath": path, "content": "b\n"})
	chat := p.chat(t, writes+"\n@@next\n@@say done")
	first := p.awaitRequestOfPerson(t, chat, 0)
	return func(t *testing.T, p *process) { changedFileIsShown(t, p, chat, first, path) }
}

func changedFileIsShown(t *testing.T, p *process, chat string, first events.PermissionRequest, path string) {
	is := is.New(t)
	p.event(t, chat, events.PermissionInterrupted{}.Kind(), nil)
	saveFile(t, path, "a\n"+personsLine)
	p.decide(t, chat, first, events.Authorized, "")

	second := p.awaitRequestOfPerson(t, chat, 1)
	expect.Contains(t, string(second.Metadata), strings.TrimSpace(personsLine)) // the person sees what would be lost
	is.Equal(read(t, path), "a\n"+personsLine)
	is.Equal(p.resumes(t, chat), map[string]int{first.ID: 1})
	p.decide(t, chat, second, events.Authorized, "")
	p.turnEnds(t, chat)
	is.Equal(read(t, path), "b\n")
	is.Equal(p.text(t, chat), "done")
}
