package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/sandbox/isolation"
)

// addProject makes a directory beside the workspace with a file in it, and a project of it.
func (p *process) addProject(t testing.TB, name string) (id, directory string) {
	t.Helper()
	directory = filepath.Join(filepath.Dir(p.workspace), name)
	expect.WriteFile(t, directory+"/note", "of "+name)
	id, err := p.Create(t.Context(), "projects", record{"name": name, "directory": directory})
	if err != nil {
		t.Fatal(err)
	}
	return id, directory
}

// chatIn starts a chat in a project with a message.
func (p *process) chatIn(t testing.TB, project, script string) (chat string) {
	t.Helper()
	chat, err := p.Create(t.Context(), "chats", record{"title": t.Name()[:min(100, len(t.Name()))], "project": project})
	if err != nil {
		t.Fatal(err)
	}
	p.submit(t, chat, script)
	return chat
}

// approvedOutput approves the first request of a chat, and returns what its command wrote.
func (p *process) approvedOutput(t testing.TB, chat string) outputs {
	t.Helper()
	p.decide(t, chat, p.awaitRequest(t, chat, 0), events.Authorized, "")
	p.finished(t, chat, 0)
	p.turnEnds(t, chat)
	return outputsOf(t, rows[projections.ShownExecution](t, p, "executions", chat)[0])
}

func TestNoProjectSeesTheFilesOfAnother(t *testing.T) {
	for _, level := range []isolation.Level{isolation.Bwrap, isolation.Landlock} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			p := startInside(t, "--isolation", string(level), "--engine-idle", "1h", "--max-engines", "2")
			expect.WriteFile(t, p.workspace+"/note", "of the first")
			second, directory := p.addProject(t, "second")

			chat := p.chatIn(t, second, bash("head note "+p.workspace+"/note"))
			out := p.approvedOutput(t, chat)
			expect.Contains(t, out.Stdout.Text, "of second")
			expect.Lacks(t, out.Stdout.Text, "of the first")
			out = p.approvedOutput(t, p.chatIn(t, events.DefaultEngine, bash("head note "+directory+"/note")))
			expect.Contains(t, out.Stdout.Text, "of the first")
			expect.Lacks(t, out.Stdout.Text, "of second")

			reads := p.chatIn(t, second, call("read", map[string]any{"filePath": p.workspace + "/note"})+"\n@@next\n@@say done")
			p.turnEnds(t, reads)
			expect.Lacks(t, p.text(t, reads)+p.describeChat(reads), "of the first")
			_, err := os.Stat(string(p.data.Path("projects", second, "opencode")))
			is.NoErr(err)
		})
	}
}
