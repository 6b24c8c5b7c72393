package pages_test

import (
	"net/url"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// addProject adds a project of which all accounts are like members, or viewers.
func addProject(t *testing.T, s *webtest.System, id, everyone string) {
	t.Helper()
	seq, err := project.Ensure(t.Context(), s.Records, project.Project{ID: id, Name: "the " + id,
		Directory: "/srv/" + id, Repository: "https://example.org/" + id, Everyone: everyone})
	webtest.Check(t, err)
	webtest.Check(t, s.Model.Wait(t.Context(), seq))
}

func TestTheListShowsAndFiltersSeveralProjects(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	s.Chat(t, token, "First")
	for _, path := range []string{"/", "/?project=local"} {
		page := b.visit(t, path).body
		for _, piece := range []string{`href="/?project=`, `name="project"`, "tag project"} {
			expect.Lacks(t, page, piece) // with one project, there is nothing to choose
		}
	}
	is.Equal(b.visit(t, "/?project=app").status, 404)
	list := b.follow(t, b.visit(t, "/"))
	addProject(t, s, "app", project.Member)
	addProject(t, s, "hidden", project.None)
	expect.Contains(t, list.until(`href="/?project=app"`), ">First<")

	page := b.visit(t, "/").body
	expect.Contains(t, page, `<option value="local" selected>workspace</option>`) // that of the newest chat
	expect.Contains(t, page, `<option value="app">the app</option>`)
	expect.Contains(t, page, `<span class="tag project">workspace</span>`)
	expect.Lacks(t, page, "project=hidden")
	expect.Lacks(t, page, "the hidden")
	page = b.visit(t, "/?project=app").body
	expect.Contains(t, page, `<option value="app" selected>the app</option>`)
	expect.Contains(t, page, "This project has no chat that you see.")
	expect.Contains(t, page, `href="/?archived=true&amp;project=app"`)
	expect.Lacks(t, page, ">First<")
	list = b.follow(t, b.visit(t, "/?project=app"))
	made := b.submit(t, "/chats", url.Values{"id": {"second"}, "project": {"app"}, "text": {"Look around"}})
	expect.Contains(t, made.body, `<a class="tag" href="/?project=app">the app</a>`)
	expect.Lacks(t, list.until("Look around"), ">First<")
	_, chat := s.Call(t, token, "GET", webtest.RecordsPath("chats")+"/second", nil)
	is.Equal(chat["project"], "app")
	page = b.visit(t, "/").body
	expect.Contains(t, page, `<option value="app" selected>the app</option>`)
	expect.Contains(t, page, `<span class="tag project">the app</span>`)

	for _, id := range []string{"hidden", "nosuch", `app" || "a"="a`} {
		is.Equal(b.visit(t, "/?project="+url.QueryEscape(id)).status, 404) // id
		refused := b.submit(t, "/chats", url.Values{"project": {id}, "text": {"Look around"}})
		is.Equal(refused.status, 400) // id
	}
}

func TestAViewerOfASecondProjectHasNoChoice(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	s.User(t, "ada", "user")
	addProject(t, s, "app", project.Viewer)
	page := loggedIn(t, s, "ada").visit(t, "/?project=app").body
	expect.Contains(t, page, `href="/?project=local"`)
	expect.Lacks(t, page, `name="project"`)
}

func TestThePageOfProjectsShowsWhatAnAccountMaySee(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	s.User(t, "root", "admin")
	s.User(t, "bot", "agent")
	addProject(t, s, "app", project.None)
	_, seq, err := s.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: project.Members, Record: "m", New: true,
		Set: record.Fields(map[string]any{"project": "app", "user": ada, "role": project.Owner})})
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	loggedIn(t, s, "ada").submit(t, "/chats", url.Values{"project": {"app"}, "text": {"Look around"}})
	s.Chat(t, token, "idle")

	page := loggedIn(t, s, "ada").visit(t, "/projects").body
	for _, piece := range []string{`href="/?project=app"`, ">/srv/app<", ">https://example.org/app<", "<dd>owner</dd>",
		"<dt>Chats at work</dt><dd>1</dd>", "<dt>Chats at work</dt><dd>0</dd>", "<li>ada <small>owner</small></li>",
		"have no access", `action="/settings/projects/app"`, "<dd>member</dd>"} {
		expect.Contains(t, page, piece)
	}
	for _, piece := range []string{`action="/settings/projects/local"`, `name="directory"`, "/delete"} {
		expect.Lacks(t, page, piece)
	}
	bob := loggedIn(t, s, "bob")
	page = bob.visit(t, "/projects").body
	expect.Contains(t, page, `href="/?project=local"`)
	expect.Lacks(t, page, "/srv/app")
	expect.Lacks(t, page, "the app")
	is.Equal(bob.visit(t, "/settings/projects/app").status, 404)
	page = loggedIn(t, s, "bot").visit(t, "/projects").body
	expect.Contains(t, page, "<dd>agent: sees all chats</dd>")
	root := loggedIn(t, s, "root")
	page = root.visit(t, "/settings/projects").body
	for _, piece := range []string{"<dd>administrator</dd>", `action="/settings/projects/local"`,
		"pocketcoder project add DIR"} {
		expect.Contains(t, page, piece)
	}
	page = root.submit(t, "/settings/projects/app", url.Values{"name": {"renamed"}}).body
	expect.Contains(t, page, ">renamed</a>")
}
