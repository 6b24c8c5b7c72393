package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/console"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

// awaitKeep waits for the request to keep a name, after the policy has left it to a person.
func (p *process) awaitKeep(t testing.TB, chat, name string) (request events.PermissionRequested) {
	t.Helper()
	p.event(t, chat, "permission.requested", func(e events.Event) bool {
		is.New(t).NoErr(json.Unmarshal(e.Data, &request))
		return request.Type == events.KindKeep && request.Patterns[0] == name
	})
	p.awaitReferral(t, chat, request.Request())
	return request
}

func (p *process) awaitApplied(t testing.TB, chat, id string) (applied events.PermissionApplied) {
	t.Helper()
	p.event(t, chat, "permission.applied", func(e events.Event) bool {
		is.New(t).NoErr(json.Unmarshal(e.Data, &applied))
		return applied.Permission == id
	})
	return applied
}

func filesOfACommandAreKeptOrDeleted(t *testing.T, p *process) {
	needsBubblewrap(t)
	is := is.New(t)
	chat := p.chat(t, bash("echo 'export A=1' > .envrc; echo cache=x > .npmrc; mkdir .vscode; echo {} > .vscode/tasks.json; "+
		"echo y > new.txt"))
	p.approve(t, chat, 0)
	p.turnEnds(t, chat) // it does not wait for the decisions
	path := func(name string) string { return filepath.Join(p.workspace, name) }
	for _, name := range []string{".envrc", ".vscode", ".npmrc"} {
		_, err := os.Lstat(path(name))
		is.True(os.IsNotExist(err))
	}
	_, err := os.Lstat(path("new.txt"))
	is.NoErr(err)
	expect.Contains(t, p.tools(t, chat)[0].State.Output, ".envrc was moved out of the workspace: a person is asked")
	is.Equal(len(p.finished(t, chat, 0).Quarantined), 3)

	kept, folder := p.awaitKeep(t, chat, ".envrc"), p.awaitKeep(t, chat, ".vscode")
	deleted := p.awaitKeep(t, chat, ".npmrc")
	admin := p.admin(t)
	request := admin.list(t, "permissions", `id = "`+kept.Permission+`"`)[0]
	is.Equal([]any{request["permission"], request["status"]}, []any{"keep", "draft"})
	expect.Contains(t, request["metadata"].(map[string]any)["text"].(string), "export A=1")
	admin.authorize(t, request)
	is.Equal(p.awaitApplied(t, chat, kept.Permission).Error, "")
	content, err := os.ReadFile(path(".envrc"))
	is.NoErr(err)
	is.Equal(string(content), "export A=1\n")

	stdout, _, code := p.cli(t, "what is it?\nn\n", "chat", chat)
	is.Equal(code, console.Pending) // .vscode still waits
	for _, want := range []string{"A command created .npmrc. Keep it?", "cache=x", "keep it? y keeps it, n deletes it:",
		"(y moves it back into the workspace; n deletes it)"} {
		expect.Contains(t, stdout, want)
	}
	is.Equal(p.awaitApplied(t, chat, deleted.Permission).Error, "")
	_, err = os.Lstat(path(".npmrc"))
	is.True(os.IsNotExist(err))

	other, run := p.background(t, "sleep 600")
	p.submit(t, other, call("write", map[string]any{"filePath": path("CLAUDE.md"), "content": "Be brief.\n"})+
		"\n@@next\n@@say done")
	p.approve(t, other, 1)
	expect.Eventually(t, "OpenCode has written the file", func() bool {
		tools := p.tools(t, other)
		return len(tools) == 2 && tools[1].State.Status == "completed"
	})
	admin.must(t, "POST", "/api/executions/"+run.ID+"/signal", map[string]string{"signal": "SIGTERM"}, nil)
	is.Equal(len(p.finished(t, other, 0).Quarantined), 0)
	content, err = os.ReadFile(path("CLAUDE.md")) // a person approved it, so it was not moved out of the workspace
	is.NoErr(err)
	is.Equal(string(content), "Be brief.\n")

	is.NoErr(os.Mkdir(path(".vscode"), 0o700)) // by a person, meanwhile
	is.NoErr(os.WriteFile(path(".vscode/settings.json"), []byte("{}"), 0o600))
	p.decide(t, chat, folder.Request(), events.Authorized, "")
	expect.Contains(t, p.awaitApplied(t, chat, folder.Permission).Error, ".vscode")
	left, err := os.ReadDir(path(".vscode"))
	is.NoErr(err)
	is.Equal(len(left), 1) // theirs
	expect.Eventually(t, "the failure shows", func() bool {
		return p.admin(t).list(t, "permissions", `id = "`+folder.Permission+`"`)[0]["failure"] != ""
	})
}
