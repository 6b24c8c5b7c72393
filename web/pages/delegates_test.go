package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/delegate"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// The worktree of a deleted delegate is closed after the answer to the deletion.
func TestADeletedDelegateSaysWhatIsLeftOfItsWorktree(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Parent")
	b := loggedIn(t, s, "ada")
	s.User(t, "bob", "user")
	other := loggedIn(t, s, "bob")
	for name, c := range map[string]struct {
		closed events.WorktreeClosed
		listed string // what the list of delegates says, "" if it does not have the delegate
	}{
		"delegate1": {events.WorktreeClosed{Kept: "it holds a.log", Branch: "pocketcoder/delegate1"},
			"The git worktree /w/delegate1 with the branch pocketcoder/delegate1 is kept: it holds a.log"},
		"delegate2": {events.WorktreeClosed{Branch: "pocketcoder/delegate2"},
			"The git worktree was removed. Its branch pocketcoder/delegate2 is kept for its commits."},
		"delegate3": {events.WorktreeClosed{}, ""},
	} {
		s.Append(t, name, events.ChatCreated{Title: name, User: ada, Engine: events.DefaultEngine,
			Parent: &events.Parent{Chat: chat,
				Root: chat, Depth: 1, Worktree: "/w/" + name, Branch: "pocketcoder/" + name}})
		s.Remove(t, token, name)
		expect.Contains(t, b.visit(t, "/chats/"+chat).body, "The git worktree /w/"+name+" is still there.")
		gone := b.visit(t, "/chats/"+name)
		is.Equal(gone.status, http.StatusNotFound)
		expect.Contains(t, gone.body, "This delegate was deleted.")
		expect.Contains(t, gone.body, `href="/chats/`+chat+`#delegates"`)
		expect.Lacks(t, other.visit(t, "/chats/"+name).body, "This delegate was deleted.")
		c.closed.Worktree = "/w/" + name
		s.Append(t, name, c.closed)
		page := b.visit(t, "/chats/"+chat).body
		expect.Lacks(t, page, "is still there")
		expect.Lacks(t, page, `href="/chats/`+name+`"`) // the chat is gone
		_, list := s.Raw(t, token, "GET", "/api/agents/workers?chat="+chat, nil)
		if c.listed == "" {
			expect.Lacks(t, page+string(list), name)
			continue
		}
		expect.Contains(t, page, c.listed)
		expect.Contains(t, string(list), `"branch":"pocketcoder/`+name+`"`)
		expect.Contains(t, string(list), `"kept":"`+c.closed.Kept+`"`)
	}
	_, all := s.Raw(t, token, "GET", "/api/agents/workers", nil)
	is.Equal(strings.Count(string(all), `"state":"deleted"`), 2)
}

func TestAChatShowsItsDelegatesAndTheirRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	chat := s.Chat(t, ada, "Parent")
	started, err := s.Web.Delegates.Delegates.Start(t.Context(), delegate.Start{Parent: delegate.Caller{Chat: chat},
		Message: "look at the tests"})
	is.NoErr(err)
	id := started.Delegate
	request := needed(t, s, id, "per_1", "make delegate")
	b := loggedIn(t, s, "ada")
	list := b.visit(t, "/").body
	expect.Lacks(t, list, `href="/chats/`+id+`"`)                          // it is found in the chat that delegated
	expect.Contains(t, list, `<span class="state"><b class="count">1</b>`) // that of the delegate
	page := b.visit(t, "/chats/"+chat).body
	for _, want := range []string{"Delegates (1)", `href="/chats/` + id + `"`, "make delegate", "1 waiting for you"} {
		expect.Contains(t, page, want)
	}
	card := element(t, page, "r-"+request)
	expect.Contains(t, card, "look at the tests") // says who asks
	expect.Contains(t, b.visit(t, "/chats/"+id).body, "The chat that they work for")

	status, all := s.Raw(t, ada, "GET", "/api/agents/workers?chat="+chat, nil)
	is.Equal(status, 200)
	expect.Contains(t, string(all), id)
	status, _ = s.Raw(t, bob, "GET", "/api/agents/workers?chat="+chat, nil)
	is.Equal(status, 404)
	status, all = s.Raw(t, bob, "GET", "/api/agents/workers", nil) // of all chats that bob sees
	is.Equal([]any{status, strings.TrimSpace(string(all))}, []any{200, "[]"})
	_, all = s.Raw(t, ada, "GET", "/api/agents/workers", nil)
	expect.Contains(t, string(all), id)
	below := "?filter=" + webtest.Escape(`parent = "`+chat+`"`)
	status, records := s.Raw(t, ada, "GET", webtest.RecordsPath("chats")+below, nil)
	is.Equal(status, 200)
	expect.Contains(t, string(records), `"id":"`+id+`"`)
	status, inbox := s.Raw(t, ada, "GET", "/api/agents/workers/"+id+"/inbox", nil)
	is.Equal(status, 200)
	expect.Contains(t, string(inbox), "look at the tests")

	for _, token := range []string{bob, ada} {
		status, _ = s.Raw(t, token, "POST", "/api/agents/workers/"+id+"/stop", nil)
		is.Equal(status, map[string]int{bob: 404, ada: 204}[token])
	}
	b.submit(t, "/chats/"+id+"/stop", url.Values{})
	_, err = s.Web.Delegates.Delegates.Finish(t.Context(), delegate.Finish{Delegate: id, Message: started.Message,
		Status: events.DelegateAborted, Text: "It was stopped."})
	is.NoErr(err)
	expect.Eventually(t, "the result is there", func() bool {
		_, one := s.Raw(t, ada, "GET", "/api/agents/workers/"+id+"/result", nil)
		return strings.Contains(string(one), `"text":"It was stopped."`) && strings.Contains(string(one), `"state":"aborted"`)
	})
}
