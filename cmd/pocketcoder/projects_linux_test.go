package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/notes"
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

func TestNotesAndRulesAreOfAProject(t *testing.T) {
	expect.Long(t, "has turns of two engines")
	t.Parallel()
	is := is.New(t)
	p := startInside(t, "--engine-idle", "1h", "--max-engines", "2")
	second, directory := p.addProject(t, "second")
	agent, err := p.Create(t.Context(), "ai_agents", record{"name": "Rememberer"})
	is.NoErr(err)
	for _, args := range [][]string{{"policy", "allow", "bash: touch made", "--project", "second"},
		{"note", "set", "Rememberer", "plan", "-", "--project", "second"}} {
		_, stderr, code := p.cli(t, "of second\n", args...)
		is.Equal([]any{stderr, code}, []any{"", 0})
	}

	first := p.chatIn(t, events.DefaultEngine, bash("touch made"))
	p.awaitRequest(t, first, 0)
	p.turnEnds(t, p.chatIn(t, second, bash("touch made")))
	_, err = os.Stat(directory + "/made") // no person was asked
	is.NoErr(err)
	file := func(workspace string) string { return filepath.Join(notes.Folder(workspace, agent), "plan.md") }
	expect.Eventually(t, "the note is a file", func() bool {
		text, _ := os.ReadFile(file(directory))
		return string(text) == "of second\n"
	})
	p.decide(t, first, p.awaitRequest(t, first, 0), events.Denied, "")
	p.turnEnds(t, first) // the notes of the first project are files by then
	_, err = os.Stat(file(p.workspace))
	is.True(errors.Is(err, fs.ErrNotExist))
	stdout, _, _ := p.cli(t, "", "note", "list", "Rememberer")
	expect.Contains(t, stdout, "the agent has no notes")
	stdout, _, _ = p.cli(t, "", "note", "list", "Rememberer", "--project", "second")
	expect.Contains(t, stdout, "plan")
	stdout, _, _ = p.cli(t, "", "policy", "list")
	expect.Contains(t, stdout, "project second")
}

// enginePID returns the process id of the OpenCode of a project, 0 if it does not run.
func (p *process) enginePID(t testing.TB, project string) (pid int) {
	t.Helper()
	path := p.data.Path("projects", project, "opencode", "pid")
	if project == events.DefaultEngine {
		path = p.data.Path("opencode", "pid")
	}
	var file struct{ PID int }
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || len(body) == 0 { // it is being written
		return 0
	}
	if err == nil {
		err = json.Unmarshal(body, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.PID
}

func TestTheDeathOfAnEngineTouchesNoOtherProject(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startInside(t, "--max-engines", "2")
	second, _ := p.addProject(t, "second")
	first := p.chat(t, "@@text n=400 delay=25")
	killed := p.chatIn(t, second, "@@text n=4000 delay=25")
	for _, chat := range []string{first, killed} {
		expect.Eventually(t, "text is streamed", func() bool { return len(p.fragments(t, "delta.chat."+chat+".>")) > 3 })
	}
	before := p.enginePID(t, events.DefaultEngine)
	is.NoErr(syscall.Kill(p.enginePID(t, second), syscall.SIGKILL))
	p.event(t, killed, "turn.lost", nil)
	p.submit(t, killed, "@@say alive")
	p.turnEnds(t, killed)
	expect.Contains(t, p.text(t, killed), "alive")
	p.turnEnds(t, first)
	is.Equal(p.lostTurns(t, first), nil)
	is.Equal(p.enginePID(t, events.DefaultEngine), before)
}

func TestProjectsTakeTurnsWithTheirEngines(t *testing.T) {
	expect.Long(t, "engines of eight projects start and stop")
	t.Parallel()
	is := is.New(t)
	const most = 3
	p := startInside(t, "--max-engines", fmt.Sprint(most))
	projects := []string{events.DefaultEngine}
	for i := range 7 {
		id, _ := p.addProject(t, fmt.Sprint("project", i))
		projects = append(projects, id)
	}
	chats := make([]string, len(projects))
	for i, project := range projects {
		chats[i] = p.chatIn(t, project, "@@say one")
	}
	for _, chat := range chats {
		p.submit(t, chat, "@@say two")
	}
	expect.Eventually(t, "each chat has its answers", func() bool {
		running := 0
		for _, project := range projects {
			if p.enginePID(t, project) > 0 {
				running++
			}
		}
		if running > most {
			t.Fatalf("%d engines run, at most %d may", running, most)
		}
		return !slices.ContainsFunc(chats, func(chat string) bool { return p.text(t, chat) != "one|two" })
	})
	for _, chat := range chats {
		is.Equal(delivered(t, p, chat), submitted(t, p, chat))
	}
}
