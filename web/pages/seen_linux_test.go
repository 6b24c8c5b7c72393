package pages_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestAChatOpensAtTheRequestThatWaits(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	b := loggedIn(t, s, "ada")
	b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {newestOf(t, b.visit(t, "/chats/"+chat).body)}})
	long := strings.Repeat("A line of the answer.\n\n", 60)
	submitMessage(t, s, chat, "msg_2", written(long))
	submitMessage(t, s, chat, "msg_3", written(long))
	d := openPage(t, s, "/chats/"+chat)
	open := func() { d.visit("/chats/" + chat) }
	seen := func(selector string) string {
		return d.evaluate(fmt.Sprintf(`((e, view) => [e.top >= view.top - 1 && e.top < view.bottom - 60, e.bottom <= view.bottom + 1])(
			document.querySelector(%q).getBoundingClientRect(), log.getBoundingClientRect())`, selector))
	}
	below := func() string { return d.evaluate(`byID("new").hidden ? "" : byID("new").textContent`) }

	is.Equal(seen("#new-line"), "true,true") // nothing waits
	is.Equal(below(), "2 new ↓")

	card := "#r-" + needed(t, s, chat, "per_1", "make install")
	open()
	is.Equal(seen(card), "true,true")
	is.Equal(below(), "")

	submitMessage(t, s, chat, "msg_4", written(long)) // of a subagent, say
	submitMessage(t, s, chat, "msg_5", written(long))
	open()
	is.Equal(seen(card), "true,true")
	is.Equal(below(), "2 new ↓")

	// what is below the view was not seen
	const reported = `(reportSeen(), reported === Number(byID("newest").dataset.seq))`
	is.Equal(d.evaluate(reported), "false")
	d.click("#new")
	d.sees("the end", `atEnd() && byID("new").hidden`)
	is.Equal(d.evaluate(reported), "true")
	is.Equal(d.evaluate(`document.querySelector("#new-line") !== null`), "true") // as long as the page is open
	expect.Eventually(t, "the server knows what was seen", func() bool {
		_, news := s.Call(t, token, "GET", "/api/pocketcoder/chats/"+chat+"/news", nil)
		return news["answers"] == 0.0
	})
	d.checkNoFaults()
}
