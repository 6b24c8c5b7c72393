package pages_test

import (
	"net/url"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestASharedChatIsReadByOthersAndWrittenByItsOwner(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	owner, reader := loggedIn(t, s, "ada"), loggedIn(t, s, "bob")
	chat := s.ChatWithAnswer(t, ada)
	s.AppendRequest(t, chat, "per_1")
	expect.Lacks(t, reader.visit(t, "/").body, chat)
	is.Equal(reader.visit(t, "/chats/"+chat).status, 404)

	page := owner.submit(t, "/chats/"+chat, url.Values{"shared": {"true"}}).body
	expect.Contains(t, page, "All accounts with access to the project workspace read this chat.")
	expect.Contains(t, page, "Stop sharing")
	list := reader.visit(t, "/").body
	expect.Contains(t, list, chat)
	expect.Contains(t, list, `<span class="tag">ada</span>`)
	expect.Lacks(t, owner.visit(t, "/").body, `<span class="tag">ada</span>`)
	page = reader.visit(t, "/chats/"+chat).body
	expect.Contains(t, page, "ada shares it with the project. You can read this chat. Only its owner writes in it.")
	for _, form := range []string{`name="text"`, `name="archived"`, `name="shared"`, `id="menu"`} {
		expect.Lacks(t, page, form)
	}
	expect.Lacks(t, reader.visit(t, "/requests").body, chat) // the reader decides nothing there

	owner.submit(t, "/chats/"+chat, url.Values{"shared": {"false"}})
	is.Equal(reader.visit(t, "/chats/"+chat).status, 404)
}

func TestProjectsAndMembersHavePages(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	s.User(t, "ada", "admin")
	s.User(t, "bob", "user")
	ada, bob := loggedIn(t, s, "ada"), loggedIn(t, s, "bob")
	page := ada.visit(t, "/settings/projects").body
	expect.Contains(t, page, "workspace")
	expect.Contains(t, ada.visit(t, "/settings/project_members").body, "Members of projects")
	expect.Contains(t, bob.visit(t, "/settings").body, `href="/projects"`)
	page = ada.visit(t, "/settings/projects/local").body
	expect.Contains(t, page, s.Workspace)
	expect.Lacks(t, page, `name="directory"`)
	expect.Contains(t, page, "have no access")
}
