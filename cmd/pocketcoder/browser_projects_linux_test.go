package main

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
)

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
		for path, has := range map[string]string{"/": own.chat, "/?project=" + own.project: own.chat,
			"/search?q=needle": own.text, "/projects": own.name, "/settings/project_members": own.name,
			"/chats/" + own.chat: own.text} {
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
