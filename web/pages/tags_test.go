package pages_test

import (
	"net/url"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestChatsHaveTagsAndTheListIsNarrowedByOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	one, two := s.Chat(t, token, "First"), s.Chat(t, token, "Second")
	expect.Lacks(t, b.visit(t, "/").body, `href="/?tag=`)
	page := b.submit(t, "/chats/"+one, url.Values{"tags": {" work ,to  do,, work,<b>"}}).body
	expect.Contains(t, page, `name="tags" value="work, to do, &lt;b&gt;"`)
	_, chat := s.Call(t, token, "GET", webtest.RecordsPath("chats")+"/"+one, nil)
	is.Equal(chat["tags"], "work,to do,<b>")
	b.submit(t, "/chats/"+two, url.Values{"tags": {"workshop"}})

	page = b.visit(t, "/").body
	for _, piece := range []string{`#to do</span>`, `href="/?tag=work"`, `href="/?tag=to+do"`, `href="/?tag=%3Cb%3E"`,
		"#&lt;b&gt;", ">First<", ">Second<"} {
		expect.Contains(t, page, piece)
	}
	page = b.visit(t, "/?tag=work").body
	expect.Contains(t, page, ">First<")
	expect.Lacks(t, page, ">Second<") // a tag is found whole
	list := b.follow(t, b.visit(t, "/?tag=work"))
	b.submit(t, "/chats/"+two, url.Values{"tags": {"work"}})
	expect.Contains(t, list.until(">Second<"), ">First<")
	b.submit(t, "/chats/"+one, url.Values{"tags": {""}})
	expect.Lacks(t, list.elements(), ">First<")
	expect.Contains(t, b.visit(t, `/?tag="`).body, "No chat has this tag.")
}
