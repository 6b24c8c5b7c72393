package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/web/chromiumtest"
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

// page returns the page at an address, and its status.
func (b *tab) page(path string) (html string, status int) {
	b.t.Helper()
	b.visit(path)
	b.checkNoFaults()
	return evaluate[string](b, "document.documentElement.outerHTML"),
		evaluate[int](b, `performance.getEntriesByType("navigation")[0].responseStatus`)
}

func TestEachMemberSeesItsOwnProjectAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	below := t.TempDir()
	expect.MakeRepository(t, below+"/second")
	expect.WriteFile(t, below+"/second/.git/config", "[remote \"origin\"]\n\turl = https://ann:secret@example.org/second.git\n")
	p := startInside(t, "--projects", below)
	root := p.openBrowser(t, phoneScreen)
	root.visit("/projects")
	root.click(".create summary")
	root.fill("#project-directory", "second")
	root.load(chromedp.Click(chromedp.CSS(".create button")))
	root.awaitCondition("the new project", `document.querySelectorAll("section.project").length === 2`)
	root.screenshot("projects")
	page, _ := root.page("/projects")
	expect.Contains(t, page, ">https://ann@example.org/second.git<")
	second := evaluate[string](root, `[...document.querySelectorAll("section.project")].find((s) =>
		s.querySelector("h2").textContent === "second").id.slice("record-".length)`)
	is.NoErr(p.Update(t.Context(), "projects", events.DefaultEngine, record{"name": "the-first", "everyone": ""}))

	type memberTab struct {
		*tab
		project, name, chat, text string
	}
	join := func(project, name, text string) memberTab {
		account := p.account(t, "user")
		_, err := p.Create(t.Context(), "project_members", record{"project": project, "user": account.id, "role": "member"})
		is.NoErr(err)
		m := memberTab{p.newBrowser(t, phoneScreen), project, name, "", text}
		chromiumtest.LogIn(t, m.ctx, p.HTTP, account.token)
		m.visit("/")
		m.fill("#text", "needle "+text)
		m.load(chromedp.Click(chromedp.CSS("#new-chat button:not([name])")))
		m.awaitText(text)
		m.chat = evaluate[string](m.tab, `location.pathname.split("/")[2]`)
		return m
	}
	ann, ben := join(events.DefaultEngine, "the-first", "oftheannals"), join(second, "second", "ofthebench")
	for _, pair := range [][2]memberTab{{ann, ben}, {ben, ann}} {
		own, other := pair[0], pair[1]
		for path, has := range map[string]string{"/": own.chat, "/?project=" + own.project: own.chat, "/search?q=needle": own.text,
			"/projects": own.name, "/settings/project_members": own.name, "/chats/" + own.chat: own.text} {
			page, status := own.page(path)
			is.Equal(status, 200) // path
			expect.Contains(t, page, has)
			for _, foreign := range []string{other.chat, other.text, other.name, other.project + `"`} {
				if strings.Contains(page, foreign) {
					t.Errorf("the member of %s sees %s at %s", own.name, foreign, path)
				}
			}
		}
		for _, path := range []string{"/?project=" + other.project, "/settings/projects/" + other.project,
			"/chats/" + other.chat, "/chats/" + other.chat + "/changes"} {
			_, status := own.page(path)
			is.Equal(status, 404) // path
		}
	}
	page, _ = root.page("/")
	for _, piece := range []string{ann.chat, ben.chat, "/?project=" + second, `name="project"`} {
		expect.Contains(t, page, piece)
	}
	root.screenshot("projects-list")
	page, _ = root.page("/?project=" + second)
	expect.Contains(t, page, ben.chat)
	expect.Lacks(t, page, ann.chat)
	root.page("/chats/" + ben.chat)
	root.screenshot("projects-chat")
}
